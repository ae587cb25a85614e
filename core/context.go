package core

import (
	"cmp"
	"context"
)

type (
	leaseKey struct{}
	ownerKey struct{}

	unlockedKey struct{}
)

// leaseContext is the context of a lease. Its Err reads the clocks. So a holder that
// was paused or suspended finds its loss at the first check after it runs again, even
// if the timer is late. A context that can be canceled and is derived from it has an
// Err of its own, which does not call this one. Only the timer ends such a context, or
// an earlier check of this one.
type leaseContext struct {
	context.Context
	lease *Lease
}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) && c.lease.opts.record == nil {
		return c.lease
	}
	return c.Context.Value(key)
}

func (c *leaseContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.lease.trusted()
	return c.Context.Err()
}

// Context returns the context of the lease, which carries the lease. It is done when
//   - the lease is lost, with cause ErrLost, before the key can expire,
//   - the lease is released, with context.Canceled,
//   - Locker.Close gave up waiting, with ErrClosed,
//   - the context of the acquire is done, with its cause. The lease is still extended
//     then.
//
// Err of this context reads the clocks, and so does Err of a context that only adds
// values. So code that was paused or suspended finds the loss by the first Err after
// that. Done is closed by a timer, which can be late then: by the time for which the
// process is not yet run, and by up to a second after a suspension of the machine. The
// same holds for Done and Err of a context that can be canceled by itself, as
// context.WithCancel and context.WithTimeout make it. Before a write that must not come
// late, call Err of this context.
func (l *Lease) Context() context.Context { return &l.ctx }

// orBackground returns ctx, or a background context if ctx is nil, for a call that must
// not fail because a caller has no context.
func orBackground(ctx context.Context) context.Context {
	return cmp.Or(ctx, context.Background())
}

// LeaseFromContext returns the lease under which ctx runs, the innermost if there are
// several. The lease's Context shows whether it is still held.
func LeaseFromContext(ctx context.Context) (*Lease, bool) {
	lease, ok := ctx.Value(leaseKey{}).(*Lease)
	return lease, ok
}

// LeaseOf returns the innermost lease of key under which ctx runs.
func LeaseOf(ctx context.Context, key string) (*Lease, bool) {
	lease := leaseOf(ctx, key, true)
	return lease, lease != nil
}

// leaseOf returns the innermost lease of key under which ctx runs, or nil. A lease that
// was released counts only if released is true: no new hold can join it.
func leaseOf(ctx context.Context, key string, released bool) *Lease {
	lease, _ := LeaseFromContext(ctx)
	for ; lease != nil; lease = lease.outer {
		if lease.hold(key) != nil && (released || !lease.isReleased()) {
			return lease
		}
	}
	return nil
}

// ContextWithOwner returns a context under which Acquire joins the hold of owner, in
// this process or in another. The key is then held by both, and free when both have
// released it. The owner is Lease.Owner of the hold to join. A text that Owner has not
// returned is ignored, and so is one whose owner does not hold the key. A token of the
// text that the hold cannot have is not believed: the lease then has the token that the
// store reports. Any caller that knows the owner can join, so pass it on like a secret.
func ContextWithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// Unlocked reports whether ctx belongs to work that runs without the lock it should
// have. That happens if the store could not be asked and the adapter has the option
// FailOpen. LeaseFromContext then finds no lease of that lock.
func Unlocked(ctx context.Context) bool { return ctx.Value(unlockedKey{}) != nil }
