package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// run is the part of a lease that only leases of Begin have.
type run struct {
	found     store.Record  // the store's record of the run
	settling  sync.Once     // by the first Finish or Withdraw
	withdrawn bool          // by Withdraw
	instead   *store.Record // of FinishLong, for its release
	err       error         // the answer of that call
	committed bool          // Commit may have saved; under the mutex of the lease
}

// Begin acquires the lease of a run, like Acquire. The store keeps the run's answer
// under the key. If the store has a finished record, Begin returns that record with a
// nil lease, after one call to the store: nothing was claimed. Otherwise the lease is
// held. The record then has the Attempt of this run, 1 for the first, and the stored
// Value: begin's own, or that of an earlier run that did not finish. Of begin, only
// Value and Retain count.
//
// The observer is notified of the lease, but not of a finished record: the caller
// reports its meaning by Report.
//
// The run ends with Finish. Release releases the lease and leaves the record
// unfinished, as a crash does; the run then counts as an attempt. It does not count
// after Withdraw. Nor does it count if Begin fails: a run that the store may have begun
// is then taken back, in the background until the store answers.
//
// LeaseFromContext and LeaseOf do not find the lease under its own context, and it is
// never re-entered: a run that is begun again inside itself is busy.
//
// Begin fails like Acquire. It also fails with ErrUnsupported if the store keeps no
// records, and with ErrInvalid for Shared, Permits, Also and KeepFor, and if Retain is
// less than 1ms.
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

// checkRun implements adapter.CheckRun.
func (l *Locker) checkRun(opts ...AcquireOption) (wait time.Duration, err error) {
	r, err := l.runRequest("check", store.Record{Retain: minRetain}, opts)
	if err != nil {
		return 0, err
	}
	return r.wait, l.serves(r)
}

// runRequest makes a request like request, for a run.
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

// checkRun refuses options that make no sense for a run.
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

// Commit calls save to save r in a transaction of the caller, in place of Finish. save
// gets the store of the run and a claim with r. It returns nil if, once the transaction
// is committed, r is saved and the claim is released. Until then the transaction can be
// rolled back.
//
// From then on the database knows best whether the lease is held. So until Finish its
// context is not done with ErrLost, and no loss is reported. The lease is extended as
// before, for a transaction that is rolled back. Finish must follow, with a record for
// a run that has not committed. It fails with store.ErrSaved if r is saved; otherwise
// it saves its own record, or not, as without Commit.
//
// Commit fails with the error of save, and the lease is then as before. It fails with
// ErrLost if the lease was released, and with ErrInvalid for a lease that is not of
// Begin, and if Retain is less than 1ms.
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

// unsaved returns err, the answer to the end of the lease, as the observer gets it: nil
// if it says that Commit has saved.
func (l *Lease) unsaved(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCommitted() && errors.Is(err, store.ErrSaved) {
		return nil
	}
	return err
}

// Finish ends a run. In one step the store saves r with its Value, Attempt, Done and
// Retain, and frees the key. It saves r if the lease is still held. It also saves r
// after the lease was lost, and after it was released by Release or by Locker.Close,
// unless another run of the key has begun since or has saved. It is safe to call with a
// canceled ctx, and is bounded like Release.
//
// It fails with ErrLost, and nothing was saved, if another run has begun or has saved,
// if the record has expired, and after Withdraw. After ErrUnavailable r may be saved or
// not. That is retried in the background, unless the lease was released before. It
// fails with ErrInvalid, and does nothing, for a lease that is not of Begin, and if
// Retain is less than 1ms. A second call returns the result of the first.
func (l *Lease) Finish(ctx context.Context, r store.Record) error {
	return l.save(ctx, &r, nil)
}

// save implements Finish for r. If the value of r is too long, it saves instead in
// place of r.
func (l *Lease) save(ctx context.Context, r, instead *store.Record) error {
	if err := checkRecord(r); err != nil {
		return fmt.Errorf("finish %s: %w: %w", l.name, err, ErrInvalid)
	}
	return l.settle(ctx, "finish", r, instead, false)
}

// FinishLong finishes a run like Finish, with a record whose value may be longer than
// the store takes. A server can refuse a long value by closing the connection, which
// looks like an outage. So a value of more than 512 KiB is sent once if the store does
// not answer, and three times if it refuses the call. A shorter value is sent until 8
// MiB were sent in vain. Then instead is saved in place of r, and the error matches
// ErrUnavailable: the server may have stored r before, and r then stays.
func (l *Lease) FinishLong(ctx context.Context, r, instead store.Record) error {
	return l.save(ctx, &r, &instead)
}

// Withdraw releases the lease of a run whose work has not begun. In the same step the
// store takes the run back, so that it does not count as an attempt and the record is
// as Begin found it. It is bounded like Release. A second call returns the result of
// the first.
//
// It fails like Release, and with ErrLost after Finish. If the lease was no longer held
// the run is taken back all the same, unless another run has begun since. After
// ErrUnavailable, and where only this process no longer trusts the lease, that goes on
// in the background, unless the lease was released before. It fails with ErrInvalid,
// and does nothing, for a lease that is not of Begin.
func (l *Lease) Withdraw(ctx context.Context) error {
	return l.settle(ctx, "withdraw", nil, nil, true)
}

// settle implements Finish and Withdraw. The first call ends the lease if no other call
// has, and later calls return its result.
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

// settleLate settles a run whose lease was released before. Nothing goes on in the
// background after it, because its Locker may have been closed.
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
