package httpmw

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// Lock is a middleware that runs what comes after it under a lock. It locks
// core.Key(name, key), with the parts of key if it is made by Join, and further
// keys that the option Also names. One attempt is made unless Acquire(core.Wait(d))
// says otherwise. If the lock is not acquired the request is aborted and
// answered as the package documentation says, and nothing after it runs.
//
// Handlers below see the lease's context in c.Request, derived from that of the
// request; above, the request is as it was. The lock is given back when they
// have returned or panicked, before a short answer is sent, so that a client's
// next request finds the lock free; if the store is down then, that can take
// about 3 seconds. What a handler started and did not wait for is not covered.
//
// A middleware or handler below that acquires the same key, with the context of
// c.Request and the same store, re-enters.
//
// It panics if l or key is nil, name is not of the form [A-Za-z0-9._-]+ or has
// more than 64 bytes, an option is nil or not for Lock, or an acquire option is not allowed. The returned
// handler is safe for concurrent use and keeps no state between requests.
func Lock(l *core.Locker, name string, key KeyFunc, opts ...Option) gin.HandlerFunc {
	switch {
	case l == nil:
		panic("httpmw: Lock: the locker is nil")
	case !isLabel(name) || len(name) > maxName:
		panic(fmt.Sprintf("httpmw: Lock: name %.80q is not of the form [A-Za-z0-9._-]+, or has more than %d bytes", name, maxName))
	case key == nil:
		panic("httpmw: Lock: the key is nil")
	}
	m := &lock{config: configure("Lock", opts), locker: l, name: name}
	if len(m.forOnce) > 0 {
		panic(fmt.Sprintf("httpmw: Lock: %s is an option of Idempotent", m.forOnce[0]))
	}
	m.keys = append([]KeyFunc{key}, m.also...)
	m.acquire = append([]core.AcquireOption{core.Wait(0), core.Name(name)}, m.acquire...)
	wait, err := l.Check(m.acquire...)
	if err != nil {
		panic(fmt.Sprintf("httpmw: Lock: %v", err))
	}
	m.waits = wait != 0
	return m.serve
}

type lock struct {
	config
	locker *core.Locker
	name   string
	keys   []KeyFunc
	waits  bool
	misuse misuse
}

func (m *lock) serve(c *gin.Context) {
	if m.skip != nil && m.skip(c) {
		return
	}
	keys, err := m.find(c)
	if err != nil {
		if c.FullPath() == "" {
			inside(c, refused)
			c.Abort() // it matches no route: gin answers 404 or 405
			return
		}
		m.misuse.tell(c, m.locker, m.name, err)
		m.fail(c, m.name, keyProblem(err))
		return
	}
	if m.waits {
		_, _ = buffer(c, m.limit) // what goes wrong with it is for the handler to find
	}
	ctx := c.Request.Context()
	opts := m.acquire
	if len(keys) > 1 {
		opts = append(slices.Clip(opts), core.Also(keys[1:]...))
	}
	lease, err := m.locker.Acquire(ctx, keys[0], opts...)
	if err != nil {
		m.fail(c, m.name, acquireProblem(ctx, err))
		return
	}
	run(c, lease)
}

// find returns the keys to lock.
func (m *lock) find(c *gin.Context) ([]string, error) {
	c.Set(limitKey{}, m.limit)
	keys := make([]string, len(m.keys))
	for i, f := range m.keys {
		value, err := f(c)
		if err != nil {
			return nil, err
		}
		if keys[i], err = lockKey(m.name, value); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// run runs what comes after the middleware under lease, and gives it back.
func run(c *gin.Context, lease *core.Lease) {
	r := c.Request
	defer func() {
		takeForm(r, c.Request)
		c.Request = r
		// Whatever it fails with, the handler's answer stands; the Locker's
		// observer is told.
		_ = lease.Release(context.WithoutCancel(r.Context()))
	}()
	c.Request = r.WithContext(lease.Context())
	c.Next()
	if over(lease.Context(), c) {
		inside(c, gaveUp)
	}
}

// takeForm gives r the form that was parsed of its copy: the server removes the
// temporary files of the request that it made, and knows no copies.
func takeForm(r, parsed *http.Request) {
	if r.MultipartForm == nil {
		r.MultipartForm = parsed.MultipartForm
	}
	if r.PostForm == nil {
		r.PostForm = parsed.PostForm
	}
	if r.Form == nil {
		r.Form = parsed.Form
	}
}

// isLabel tells whether s is of the form [A-Za-z0-9._-]+.
func isLabel(s string) bool {
	return s != "" && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}
