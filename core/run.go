package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// run is the part of a lease of Begin that other leases do not have.
type run struct {
	found     store.Record  // what the store keeps of it
	settling  sync.Once     // by the first Finish or Withdraw
	withdrawn bool          // that was Withdraw
	instead   *store.Record // of FinishLong, for its release
	err       error         // its answer
	committed bool          // Commit may have saved; under the mutex of the lease
}

// Begin is Acquire for a run whose answer the store keeps under the key. If a
// finished record is kept there, that is what Begin returns, with a nil lease
// and after one call to the store: nothing was claimed. Else the lease is held,
// and the record tells the Attempt that this run is, 1 for the first, and the
// Value that is kept: begin's own, or that of an earlier run that did not
// finish. Of begin, Value and Retain count.
//
// The observer is told of the lease, and of a finished record nothing: the caller tells
// its meaning by Report.
//
// The run ends with Finish. Release gives the lease back and leaves the record
// unfinished, as a crash does; the run then counts as an attempt. It does not if
// Begin fails: a run that the store may have begun is taken back, in the background
// until the store answers. Nor does it after Withdraw.
//
// The lease is not found by LeaseFromContext or LeaseOf under its own context,
// and never re-entered: a run that is begun again inside itself is busy.
//
// It fails like Acquire, with ErrUnsupported if the store keeps no records, and
// with ErrInvalid also for Shared, Permits, Also and KeepFor, and if Retain is
// not 1ms at least.
func (l *Locker) Begin(ctx context.Context, key string, begin store.Record, opts ...AcquireOption) (*Lease, store.Record, error) {
	r, err := l.runRequest(key, begin, opts)
	if err != nil {
		return nil, store.Record{}, err
	}
	lease, err := l.acquire(ctx, r)
	if err != nil {
		return nil, store.Record{}, err
	}
	if found := lease.run.found; found.Done {
		return nil, found, nil
	}
	return lease, lease.run.found, nil
}

// checkRun is adapter.CheckRun.
func (l *Locker) checkRun(opts ...AcquireOption) (wait time.Duration, err error) {
	r, err := l.runRequest("check", store.Record{Retain: minRetain}, opts)
	if err != nil {
		return 0, err
	}
	return r.wait, l.serves(r)
}

// runRequest is request for a run.
func (l *Locker) runRequest(key string, begin store.Record, opts []AcquireOption) (*request, error) {
	r, err := l.request(key, opts)
	if err != nil {
		return nil, err
	}
	r.ofRun(&begin)
	if err := r.checkRun(); err != nil {
		return nil, fmt.Errorf("acquire %s: %w: %w", r.name, err, ErrInvalid)
	}
	return r, nil
}

// checkRun refuses what makes no sense for a run.
func (r *request) checkRun() error {
	switch {
	case r.weight != store.All:
		return errors.New("a run is exclusive, Shared and Permits are not allowed")
	case len(r.also) > 0:
		return errors.New("a run has one key, Also is not allowed")
	case r.keep > 0:
		return errors.New("a run ends with its answer, KeepFor is not allowed")
	}
	return checkRecord(r.record)
}

func checkRecord(r *store.Record) error {
	if r.Retain < minRetain {
		return fmt.Errorf("a record is retained for %v, %v at least is allowed", r.Retain, minRetain)
	}
	return nil
}

// Commit has save save r in a transaction of the caller, in place of Finish. Save gets the store
// of the run and a claim with r, and returns nil if r is saved and the claim given up as soon as
// the transaction is committed. Until then it can be rolled back.
//
// From then on the database knows best whether the lease is held. So its context does not end
// with ErrLost any more, and no loss is reported, until Finish. The lease is extended as
// before, for a transaction that is rolled back. Finish has to follow, with a record
// for a run that has not committed: it fails with store.ErrSaved if r is saved, and else it
// saves its own record, or not, as without Commit.
//
// It fails with the error of save, after which the lease is as before; with ErrLost if the lease
// was released; and with ErrInvalid for a lease that is not of Begin, and if Retain is not
// 1ms at least.
func (l *Lease) Commit(ctx context.Context, r store.Record, save func(ctx context.Context, s Store, c store.Claim) error) error {
	switch {
	case l.opts.record == nil:
		return fmt.Errorf("commit %s: not a lease of Begin: %w", l.name, ErrInvalid)
	case l.isReleased():
		return fmt.Errorf("commit %s: %w", l.name, ErrLost)
	}
	if err := checkRecord(&r); err != nil {
		return fmt.Errorf("commit %s: %w: %w", l.name, err, ErrInvalid)
	}
	c := l.first.releaseClaim()
	c.Record = &r
	if err := save(ctx, l.engine.store, c); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.run.committed = true
	return nil
}

// isCommitted reports whether the run of the lease may have saved its record in a transaction.
// The caller holds the mutex.
func (l *Lease) isCommitted() bool { return l.run != nil && l.run.committed }

// unsaved is err, the answer to the end of the lease, as the observer hears of it: nil if it
// says that Commit has saved.
func (l *Lease) unsaved(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCommitted() && errors.Is(err, store.ErrSaved) {
		return nil
	}
	return err
}

// Finish ends a run: in one step the store saves r with its Value, Attempt, Done
// and Retain, and frees the key. It saves r if the lease is still held, and else
// if no other run of the key has begun since and no other has saved: also after
// the lease was lost, and after it was given back by Release or by Locker.Close.
// It works on an ended ctx and is bounded like Release.
//
// It fails with ErrLost, and nothing was saved, if another run has begun or has
// saved, if the record has ended, and after Withdraw. After ErrUnavailable r may
// be saved or not; that is tried further in the background, unless the lease was
// given back before. It fails with ErrInvalid, and does nothing, for a lease that
// is not of Begin, and if Retain is not 1ms at least. A second call gives the
// answer of the first.
func (l *Lease) Finish(ctx context.Context, r store.Record) error {
	return l.save(ctx, &r, nil)
}

// save is Finish for r. If its value is too long, instead is saved in its place.
func (l *Lease) save(ctx context.Context, r, instead *store.Record) error {
	if err := checkRecord(r); err != nil {
		return fmt.Errorf("finish %s: %w: %w", l.name, err, ErrInvalid)
	}
	return l.settle(ctx, "finish", r, instead, false)
}

// FinishLong is Finish for a record whose value may be longer than the store takes. A server
// can refuse one by closing the connection, which looks like an outage. So the store is sent
// a value of more than 512 KiB once if it does not answer, and three times if it refuses
// the call; a shorter value is sent until 8 MiB were sent in vain. Then instead is saved in
// its place, and the error matches ErrUnavailable: the server may have stored r before,
// which stays then.
func (l *Lease) FinishLong(ctx context.Context, r, instead store.Record) error {
	return l.save(ctx, &r, &instead)
}

// Withdraw is Release for a run whose work has not begun: in the same step the
// store takes the run back, so that it does not count as an attempt and the
// record is as Begin found it. It is bounded like Release. A second call gives the
// answer of the first.
//
// It fails like Release, and with ErrLost after Finish. If the lease was no longer
// held the run is taken back all the same, unless another one has begun since.
// After ErrUnavailable, and where only this process no longer trusts the lease,
// that goes on in the background, unless the lease was given back before. It fails
// with ErrInvalid, and does nothing, for a lease that is not of Begin.
func (l *Lease) Withdraw(ctx context.Context) error {
	return l.settle(ctx, "withdraw", nil, nil, true)
}

// settle is Finish and Withdraw: the first call ends the lease, if nothing else
// has, and the others have its answer.
func (l *Lease) settle(ctx context.Context, op string, r, instead *store.Record, withdraw bool) error {
	if l.opts.record == nil {
		return fmt.Errorf("%s %s: not a lease of Begin: %w", op, l.name, ErrInvalid)
	}
	l.run.settling.Do(func() {
		l.run.withdrawn, l.run.instead = withdraw, instead
		err := l.endError(op, errNoEnd)
		defer func() { l.run.err = err }()
		var first bool
		if first, err = l.finish(ctx, op, r, withdraw); !first {
			err = l.settleLate(ctx, op, r, withdraw)
		}
	})
	if l.run.withdrawn != withdraw {
		return l.endError(op, ErrLost)
	}
	return l.run.err
}

// settleLate settles a run whose lease was given back before. Nothing goes on in
// the background after it, since its Locker may have been closed.
func (l *Lease) settleLate(ctx context.Context, op string, r *store.Record, withdraw bool) error {
	c := l.releaseClaim(&l.first, r)
	c.Undo = withdraw
	_, _, err := l.engine.release(&c, l.engine.now().Time().Add(releaseLimit))
	err = l.endError(op, err)
	e := l.event(CleanedUp)
	e.Err = l.unsaved(err)
	l.engine.observe(orBackground(ctx), e)
	return err
}
