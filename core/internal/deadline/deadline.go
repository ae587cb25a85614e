// Package deadline has contexts that end at a time. One of package context has a
// timer for that, which costs more than the rest of a call to a store. One of
// these has none until somebody waits for its end: who looks after the time
// anyway need not.
package deadline

import (
	"context"
	"sync"
	"time"
)

// Context is the context of context.WithDeadlineCause, without a timer for as
// long as nobody calls Done. If it has ended in several ways before anybody asks,
// it tells any of them. It is safe for concurrent use.
type Context struct {
	parent context.Context
	until  time.Time
	cause  error

	mu     sync.Mutex
	over   bool
	full   context.Context // of package context, once it is needed; nil before
	cancel context.CancelFunc
}

// New returns a context that ends with parent, d from now with the given cause
// (nil for none but context.DeadlineExceeded), or with Cancel.
func New(parent context.Context, d time.Duration, cause error) *Context {
	return &Context{parent: parent, until: time.Now().Add(d), cause: cause}
}

// Parts are what the context is made of: it ends with parent, or at until. Who
// looks after both need not call Done. Cancel ends neither.
func (c *Context) Parts() (parent context.Context, until time.Time) { return c.parent, c.until }

// Cancel ends the context. It has to be called when nobody needs it any more.
func (c *Context) Cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.cancel != nil {
		c.cancel()
	}
}

// whole is the same as a context of package context.
func (c *Context) whole() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full == nil {
		c.full, c.cancel = context.WithDeadlineCause(c.parent, c.until, c.cause)
		if c.over {
			c.cancel()
		}
	}
	return c.full
}

// short is c.parent if the context lasts and nobody has called Done so far: then
// that says everything but the deadline. Else it is the whole.
func (c *Context) short() context.Context {
	c.mu.Lock()
	last := c.full == nil && !c.over
	c.mu.Unlock()
	if last && c.parent.Err() == nil && time.Now().Before(c.until) {
		return c.parent
	}
	return c.whole()
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) {
	if end, ok := c.parent.Deadline(); ok && end.Before(c.until) {
		return end, true
	}
	return c.until, true
}

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} { return c.whole().Done() }

// Err implements context.Context.
func (c *Context) Err() error { return c.short().Err() }

// Value implements context.Context. Package context finds the cause by it.
func (c *Context) Value(key any) any { return c.short().Value(key) }
