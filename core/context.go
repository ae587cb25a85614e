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

// leaseContext is the context of a lease. Its Err reads the clocks, see Lease.Context.
// A cancelable context that is derived from a leaseContext does not call Err of the
// leaseContext. So at the end of the trust, the derived context is not done until the
// watchdog's timer or a check of the lease has found the loss.
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

// Context returns the context of the lease. The context carries the lease, except the
// lease of a run (Begin). The context is done when
//   - the lease is lost, with cause ErrLost, before the key can expire,
//   - the lease is released, with context.Canceled,
//   - Locker.Close gave up waiting, with ErrClosed,
//   - the context of the acquire is done, with its cause. The lease is nevertheless
//     extended.
//
// Err of this context reads the clocks, and so does Err of a derived context that only
// adds values. So code that was paused or suspended finds the loss by its first call of
// Err after the pause. Done depends on a timer. After a pause of the process, the timer
// fires as soon as the process runs again. After a suspension of the machine, the timer
// fires up to a second later. Done and Err of a derived context of context.WithCancel
// or context.WithTimeout depend on this timer too. So call Err of this context before a
// write that must not come late.
func (l *Lease) Context() context.Context { return &l.ctx }

func orBackground(ctx context.Context) context.Context {
	return cmp.Or(ctx, context.Background())
}

// LeaseFromContext returns the lease that ctx carries, the innermost if there are
// several. It does not find the lease of a run (Begin). The lease's Context shows
// whether the lease is still held.
func LeaseFromContext(ctx context.Context) (*Lease, bool) {
	lease, ok := ctx.Value(leaseKey{}).(*Lease)
	return lease, ok
}

// LeaseOf returns the innermost lease of key that ctx carries. The lease may have been
// lost or released.
func LeaseOf(ctx context.Context, key string) (*Lease, bool) {
	lease := leaseOf(ctx, key, true)
	return lease, lease != nil
}

// leaseOf returns the innermost lease of key that ctx carries, or nil. Unless released
// is true, it skips released leases, because a new hold cannot join their holds.
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
// this process or in another process. Both leases then hold the key, and the key is
// free when both leases are released. Permits and Begin never join. If ctx has a lease
// of the key, Acquire re-enters that lease and ignores owner. owner is a text that
// Lease.Owner has returned for the hold. Any other text is ignored, and so is a text
// whose owner does not hold the key. If the text has a token that the hold cannot have,
// the lease gets the token that the store reports. Any caller that knows the text can
// join the hold, so treat the text as a secret.
func ContextWithOwner(ctx context.Context, owner string) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// Unlocked reports whether ctx belongs to work that runs without its lock. An adapter
// with the option FailOpen runs such work while the store is unavailable.
// LeaseFromContext then finds no lease of that lock.
func Unlocked(ctx context.Context) bool { return ctx.Value(unlockedKey{}) != nil }
