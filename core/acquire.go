package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Acquire takes the lock on key. While the key is busy, Acquire waits until ctx is
// done, or as long as Wait allows. If the store does not answer, Acquire fails with
// ErrUnavailable after a few attempts.
//
// Under a context that carries a lease of the same key from the same Locker, Acquire
// re-enters that lease and does not wait. The key is then free only when both leases
// are released. Every re-entry asks the store whether the outer lease is still held.
// With Permits, Acquire never re-enters. Shared describes the downgrade from writer to
// reader.
//
// By default the lease is extended until Release is called; see NoRenew and MaxHold. The
// extensions continue even if ctx is done, because the work may still be running. So the
// caller has to release every lease.
//
// An acquire that gives up on a busy key withdraws its claim at the store before it
// returns. It waits at most half a second for the withdrawal, and not at all if ctx is
// done. A withdrawal that is not completed by then continues in the background.
//
// Acquire returns an error matching
//   - ErrBusy, if the key is busy. The error is a *BusyError, or it also matches the
//     cause of ctx if ctx ended the wait,
//   - ErrUnavailable, if the store does not answer. The error also matches the cause of
//     ctx if ctx was done first,
//   - the cause of ctx and no error of the kit, if ctx was done before a request was
//     sent and before the key was found busy,
//   - ErrLost, if the outer lease was lost, or if one of several keys was lost before
//     the last key was granted,
//   - ErrClosed, if the Locker is closed,
//   - ErrUnsupported, if the store does not serve such a claim,
//   - ErrInvalid, for a key or option that is not allowed, a nil ctx, or a claim
//     heavier than the hold that it re-enters.
//
// After any error the caller holds nothing.
func (l *Locker) Acquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	r, err := l.request(key, opts)
	if err != nil {
		return nil, err
	}
	return l.acquire(ctx, r)
}

// TryAcquire acquires like Acquire, with one attempt. It asks the store once, and
// repeats the request only after a transient failure. It fails with ErrBusy if the key
// is busy, or if other callers of this process are waiting for the key. While another
// caller of this process asks the store, TryAcquire waits for the store's answer.
// TryAcquire can share a busy answer to another caller, and then sends no request. The
// other request must have begun after the call of TryAcquire, and must be for the same
// kind of lock and for no greater weight.
func (l *Locker) TryAcquire(ctx context.Context, key string, opts ...AcquireOption) (*Lease, error) {
	r, err := l.request(key, opts)
	if err != nil {
		return nil, err
	}
	r.tryOnce()
	return l.acquire(ctx, r)
}

// acquire implements Acquire for r, and puts r back into the pool.
func (l *Locker) acquire(ctx context.Context, r *request) (*Lease, error) {
	defer r.free()
	if ctx == nil {
		return nil, fmt.Errorf("core: acquire %q: ctx is nil: %w", r.name, ErrInvalid)
	}
	// The lease is made before countIn, because a method of ctx may panic.
	lease := newLease(&l.engine, ctx, r.key, r.name, r.terms)
	start := l.now()
	if !l.roster.countIn(lease, start) {
		lease.endContext(nil)
		return nil, fmt.Errorf("core: acquire %q: %w", r.name, ErrClosed)
	}
	over := false // set when the caller has the lease, or when the lease was released
	defer func() {
		if !over { // a finished record was found, or the store panicked
			lease.abandon()
			l.roster.countOut(lease)
		}
	}()
	var until time.Time
	if r.wait > 0 {
		until = start.Time().Add(r.wait)
	}
	a := attempt{engine: &l.engine, request: r, ctx: ctx, lease: lease, until: until}
	var err error
	for _, key := range r.keys {
		if err = a.acquireKey(key); err != nil {
			break
		}
	}
	now := l.now()
	wait := now.Since(start)
	if r.report != nil {
		*r.report = lease.outcome(0)
		r.report.Wait = wait
	}
	if err == nil && lease.run != nil && lease.run.found.Done {
		return lease, nil // the lease has the record and no hold
	}
	if err == nil {
		err = lease.start(now)
	}
	if err != nil {
		if end := ctx.Err(); end != nil && errors.Is(err, end) {
			lease.abandon() // the caller no longer waits
		} else {
			lease.stop()
			lease.endContext(nil)
			// A queue has the lease's hold only if start failed because the Locker is
			// closed. The hold is then released and not passed on.
			lease.passOrRelease(ctx, nil, l.now())
		}
		l.roster.countOut(lease)
		over = true
		e := lease.outcome(GaveUp)
		e.Wait, e.Err = wait, err
		if busy, ok := err.(*BusyError); ok {
			e.Err = busy.WithoutKey()
		}
		l.observe(ctx, e)
		return nil, err
	}
	lease.announce(ctx, wait)
	over = true
	return lease, nil
}

// acquireKey adds a hold of key to the lease. If it adds no hold, it makes the cleanup
// release a claim that may be held or waiting at the store.
func (a *attempt) acquireKey(key string) (err error) {
	c := a.request.claim(key, a.lease.first.id)
	a.key = keyAttempt{}
	defer func() { // runs after the leave that is deferred below, so the waiter has left its queue
		unsure, got := a.lease.unsure[key], a.lease.hold(key) != nil
		if !got && (unsure || a.key.placed) {
			withdrawal := releasing{Claim: a.request.claim(key, a.lease.first.id), name: a.request.name, mode: a.request.mode}
			withdrawal.Record = nil
			withdrawal.Undo = unsure && a.request.record != nil
			withdrawn := make(chan struct{})
			a.engine.cleanup.add(withdrawal, unsure, func(error) { close(withdrawn) })
			if errors.Is(err, ErrBusy) && a.ctx.Err() == nil {
				// The program may exit soon. A fair claim that is not withdrawn keeps
				// other waiters out for as long as the store remembers it.
				_, _ = a.sleep(withdrawn, withdrawLimit, nil)
			}
		}
	}()
	switch outer := leaseOf(a.ctx, key, false); {
	case a.request.mode == ModePermits || a.request.mode == ModeRun:
	case outer == nil:
		owner, _ := a.ctx.Value(ownerKey{}).(string)
		c.Via, a.key.joinToken = splitOwner(owner, key)
		a.key.byText = true
	case outer.engine == a.engine:
		return a.join(&c, outer)
	default: // outer is a lease of another Locker, perhaps at the same store
		c.Via, a.key.joinToken = outer.show(key)
	}
	if c.Via != "" {
		// The holder may be waiting for this caller. So this caller does not queue
		// behind callers that wait for the holder.
		if err := a.askRetrying(&c); err == nil || !errors.Is(err, ErrBusy) || a.request.wait == 0 {
			return a.acquireError(&c, err)
		}
	}
	t := a.request.newWaiter(&c)
	a.engine.waiters.enter(t)
	defer func() { // the queue gets the lease's hold, which can be passed on later
		if unused := a.engine.waiters.leave(t, a.lease.passable(), a.lease.hold(key) != nil, a.key.failed); unused != nil {
			a.lease.abandonHold(unused)
		}
	}()
	return a.acquireError(&c, a.inLine(t, &c))
}

// join adds a hold to the lease by the claim c, which joins the hold of outer. It fails
// with ErrLost if outer is lost in this process, or if the owner of outer no longer
// holds the key at the store.
func (a *attempt) join(c *store.Claim, outer *Lease) error {
	lost := fmt.Errorf("core: acquire %q: the outer lease of the key: %w", a.request.name, ErrLost)
	if !outer.trusted() {
		return lost
	}
	c.Via, a.key.joinToken = outer.show(c.Key)
	err := a.askRetrying(c)
	busy := errors.Is(err, ErrBusy) && a.ctx.Err() == nil
	if busy || err == nil && a.lease.hold(c.Key).owner != c.Via {
		outer.lose() // acquire releases the granted hold
		return lost
	}
	return a.acquireError(c, err)
}
