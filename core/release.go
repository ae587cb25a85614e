package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Release releases the lease with all its keys. It is safe to call with a canceled or
// nil ctx. If the store does not answer, Release returns an error matching
// ErrUnavailable after about 3 seconds. If another lease of this process is releasing
// the same hold, this can take about 6 seconds. The release is then retried in the
// background. If the lease was lost, the error matches ErrLost. A lease that expires
// during its release counts as released. Later calls return the result of the first.
func (l *Lease) Release(ctx context.Context) error {
	_, err := l.finish(ctx, "release", nil, false)
	return err
}

// finish ends the lease for Release, Finish and Withdraw. r is the record to save, or
// nil. The first call ends the lease, and returns first as true. Later calls return the
// error of the first call.
func (l *Lease) finish(ctx context.Context, op string, r *store.Record, withdraw bool) (first bool, err error) {
	ctx = orBackground(ctx)
	l.mu.Lock()
	if l.releasing {
		l.mu.Unlock()
		l.released.Wait()
		return false, l.err
	}
	l.releasing = true
	if withdraw {
		l.begun = false
	}
	l.mu.Unlock()
	held, wasLost := l.conclude(ctx, op, r)
	switch {
	case !wasLost:
		l.notifyEnd(ctx, Released, held, l.unsaved(l.err))
	case r != nil && errors.Is(l.unsaved(l.err), ErrLost):
		// Lost was reported before the failed save.
		e := l.event(CleanedUp)
		e.Err = l.err
		l.engine.observe(ctx, e)
	}
	return true, l.err
}

// conclude ends the lease in this process and at the store. It returns the time for
// which the lease was held, and whether the lease had been lost. Even if the store
// panics, the calls of finish that wait for conclude return.
func (l *Lease) conclude(ctx context.Context, op string, r *store.Record) (held time.Duration, wasLost bool) {
	err := errPanicked
	defer func() {
		l.err = l.endError(op, err)
		l.engine.roster.countOut(l)
		l.released.Done()
	}()
	now := l.engine.now()
	l.trustedAt(now)
	wasLost = l.stop() == lost
	if wasLost {
		l.endContext(ErrLost) // before endContext(nil), because the first cause counts
	}
	l.endContext(nil)
	held = now.Since(l.since)
	if wasLost && r == nil {
		// The store may still have some of the lease's holds. The caller does not have
		// to wait for their release.
		l.abandon()
		err = ErrLost
	} else {
		err = l.passOrRelease(ctx, r, now) // in passing.go
	}
	return held, wasLost
}

// endError returns the caller's error for operation op, which ended the lease at the
// store with error err.
func (l *Lease) endError(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrSaved):
		return fmt.Errorf("core: %s %q: %w", op, l.name, store.ErrSaved)
	case errors.Is(err, ErrLost):
		return fmt.Errorf("core: %s %q: %w", op, l.name, ErrLost)
	}
	return unavailable(op, l.name, err)
}

// releaseHolds releases the holds of the lease at the store, and saves r unless r is
// nil. It releases the holds concurrently, because a store can combine concurrent calls
// into few round trips.
func (l *Lease) releaseHolds(r *store.Record, until time.Time) error {
	for _, h := range l.holds {
		h.retire()
	}
	if len(l.holds) == 1 {
		return l.releaseHold(l.holds[0], r, until)
	}
	errs, panics := make([]error, len(l.holds)), make([]any, len(l.holds))
	var released sync.WaitGroup
	for i, h := range l.holds {
		released.Go(func() {
			defer func() { panics[i] = recover() }()
			errs[i] = l.releaseHold(h, r, until)
		})
	}
	released.Wait()
	if i := slices.IndexFunc(panics, func(p any) bool { return p != nil }); i >= 0 {
		panic(panics[i])
	}
	failed, first := 0, error(nil)
	for _, err := range errs {
		switch {
		case errors.Is(err, ErrLost):
			return err
		case err != nil:
			failed++
			first = cmp.Or(first, err)
		}
	}
	if first != nil {
		return fmt.Errorf("%d of %d keys are not released yet: %w", failed, len(l.holds), first)
	}
	return nil
}

func (l *Lease) releaseHold(h *hold, r *store.Record, until time.Time) error {
	return h.release(l.releaseClaim(h, r), l.unsure[h.key], until)
}

// abandon ends the lease and releases its holds in the background.
func (l *Lease) abandon() {
	l.stop()
	l.endContext(nil)
	for _, h := range l.holds {
		l.abandonHold(h)
	}
}

// abandonHold releases h in the background. h is a hold of the lease, or a hold that
// was passed on to the lease and not taken.
func (l *Lease) abandonHold(h *hold) {
	l.engine.waiters.holdEnded(h)
	h.abandon(l.releaseClaim(h, nil), l.unsure[h.key])
}

// releaseClaim returns the claim that releases h, and saves r unless r is nil. If the
// lease has a run whose work has not begun, the claim undoes the run.
func (l *Lease) releaseClaim(h *hold, r *store.Record) releasing {
	c := releasing{Claim: h.releaseClaim(), name: l.name, mode: l.opts.mode}
	if r != nil {
		c.save(r, l.run.instead)
	}
	if l.begun && l.opts.keep > 0 {
		c.Keep = max(0, l.opts.keep-l.engine.now().Since(l.holds[len(l.holds)-1].arrived))
	}
	c.Undo = l.opts.record != nil && !l.begun
	return c
}
