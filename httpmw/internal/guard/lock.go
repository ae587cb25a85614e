package guard

import (
	"context"
	"slices"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/keys"
)

// Lock runs the inner handlers under a lock.
type Lock struct {
	Config
	locker *core.Locker
	name   string
	keys   []KeyFunc
	waits  bool
	misuse misuse
}

// NewLock returns a Lock. It panics as httpmw.Lock does.
func NewLock[O ~func(*Config)](p Package, l *core.Locker, name string, key KeyFunc, opts []O) *Lock {
	switch err := keys.CheckName(name); {
	case l == nil:
		p.panic("Lock: the locker is nil")
	case err != nil:
		p.panic("Lock: %v", err)
	case key == nil:
		p.panic("Lock: the key is nil")
	}
	m := &Lock{Config: configure(p, "Lock", opts), locker: l, name: name}
	if len(m.forOnce) > 0 {
		p.panic("Lock: %s is an option of Idempotent", m.forOnce[0])
	}
	m.keys = append([]KeyFunc{key}, m.also...)
	m.acquire = append([]core.AcquireOption{core.Wait(0), core.Name(name)}, m.acquire...)
	wait, err := adapter.Check(l, m.acquire...)
	if err != nil {
		p.panic("Lock: %v", err)
	}
	m.waits = wait != 0
	return m
}

// Serve runs the middleware for one request.
func (m *Lock) Serve(x Exchange) {
	if m.skip != nil && m.skip(x) {
		x.Next()
		return
	}
	keys, err := m.find(x)
	if err != nil {
		if x.Missed() {
			refused(x, false, x.Abort) // the framework responds with 404 or 405
			return
		}
		m.misuse.notify(x.Request().Context(), m.locker, m.name, err)
		m.fail(x, m.name, keyProblem(err))
		return
	}
	if m.waits {
		_, _ = buffer(x, m.limit) // the handler gets the errors of reading
	}
	ctx := x.Request().Context()
	opts := m.acquire
	if len(keys) > 1 {
		opts = append(slices.Clip(opts), core.Also(keys[1:]...))
	}
	lease, err := m.locker.Acquire(ctx, keys[0], opts...)
	if err != nil && m.open {
		if open, ok := adapter.FailOpen(ctx, m.locker, m.name, err); ok {
			run(x, open)
			return
		}
	}
	if err != nil {
		m.fail(x, m.name, acquireProblem(ctx, err))
		return
	}
	// The handler's response does not depend on the error of Release. The Locker's
	// observer is notified of that error.
	defer func() { _ = lease.Release(context.WithoutCancel(ctx)) }()
	run(x, lease.Context())
}

func (m *Lock) find(x Exchange) ([]string, error) {
	x.SetLimit(m.limit)
	found := make([]string, len(m.keys))
	for i, f := range m.keys {
		value, err := f(x)
		if err != nil {
			return nil, err
		}
		if found[i], err = m.pkg.sourceOf("key").Key(m.name, value); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func run(x Exchange, ctx context.Context) {
	r := x.Request()
	defer func() {
		TakeForm(r, x.Request())
		x.SetRequest(r)
	}()
	x.Under(ctx)
	x.Next()
	if over(ctx, x) {
		x.GiveUp()
	}
}
