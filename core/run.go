package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

// run is the part of a lease that only leases of Begin have.
type run struct {
	found     store.Record  // the store's record after Begin
	settling  sync.Once     // done by the first Finish or Withdraw
	withdrawn bool          // the first call was Withdraw, not Finish
	instead   *store.Record // replaces a record whose value is too long, see FinishLong
	err       error         // the result of the first Finish or Withdraw
	committed bool          // the save of Commit succeeded; guarded by the lease's mutex
}

// Begin acquires the lease of a run, like Acquire. The store stores a record under the
// key, in which Finish later saves the answer of the run. Begin uses only Value and
// Retain of the parameter begin. Begin returns the held lease and the record of this
// run. The record has the run's Attempt, 1 for the first run, and a Value. The Value is
// begin's own, or the Value of an earlier run that did not finish. If the store has a
// finished record, Begin returns this record with a nil lease, usually after one call
// to the store. No lock is then held.
//
// The observer is notified of the events of the lease, but not of a finished record.
// The caller reports a finished record with the event that adapter.Report fills.
//
// Finish ends the run. Release releases the lease and leaves the record unfinished, as
// a crash does. The run then counts as an attempt. A run that is withdrawn, or whose
// Begin fails, does not count. If Begin fails and the store may have begun the run, the
// run is undone in the background. The undo is retried until the store answers, for at
// least ten minutes.
//
// LeaseFromContext and LeaseOf do not find the lease of a run, and an acquire never
// re-enters it. So a Begin of the same key inside the run finds the key busy.
//
// Begin fails like Acquire. It also fails with ErrUnsupported if the store has no
// records. It fails with ErrInvalid for Shared, Permits, Also and KeepFor, and if
// Retain is less than 1 ms.
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

// runRequest returns the request of a run, like Locker.request for an acquire.
func (l *Locker) runRequest(key string, begin store.Record, opts []AcquireOption) (*request, error) {
	r, err := l.request(key, opts)
	if err != nil {
		return nil, err
	}
	r.ofRun(&begin)
	if err := r.checkRun(); err != nil {
		return nil, fmt.Errorf("core: acquire %q: %w: %w", r.name, err, ErrInvalid)
	}
	return r, nil
}

func (r *request) checkRun() error {
	switch {
	case r.weight != store.All:
		return errors.New("Shared and Permits are not for runs")
	case len(r.also) > 0:
		return errors.New("Also is not for runs")
	case r.keep > 0:
		return errors.New("KeepFor is not for runs")
	}
	return checkRecord(r.record)
}

func checkRecord(r *store.Record) error {
	if r.Retain < minRetain {
		return fmt.Errorf("the record's Retain %s is out of range (at least %s)", words.Duration(r.Retain), words.Duration(minRetain))
	}
	return nil
}

// Commit calls save to save r in a transaction of the caller, in place of Finish. save
// gets the store of the run and a claim with r. save must save r and release the claim
// in the transaction, and return nil if both succeeded. Until the transaction is
// committed, it can be rolled back.
//
// After save has returned nil, only the database knows whether the lease is held. So
// until Finish, the observer is not notified of a loss, and the lease's context is not
// done with ErrLost. The lease is extended as before, because the transaction may be
// rolled back. Finish must follow, with a record for the case that the transaction was
// not committed. If r is saved, Finish fails with store.ErrSaved. If not, Finish
// behaves as without Commit.
//
// Commit fails with the error of save, and the lease is then unchanged. It fails with
// ErrLost if the lease was released. It fails with ErrInvalid for a lease that is not
// of Begin, and if Retain is less than 1 ms.
func (l *Lease) Commit(ctx context.Context, r store.Record, save func(ctx context.Context, s Store, c store.Claim) error) error {
	switch {
	case l.opts.record == nil:
		return fmt.Errorf("core: commit %q: not a lease of Begin: %w", l.name, ErrInvalid)
	case l.isReleased():
		return fmt.Errorf("core: commit %q: %w", l.name, ErrLost)
	}
	if err := checkRecord(&r); err != nil {
		return fmt.Errorf("core: commit %q: %w: %w", l.name, err, ErrInvalid)
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

// isCommitted reports whether a Commit of the lease's run succeeded. The transaction
// may nevertheless be rolled back. The caller holds the mutex.
func (l *Lease) isCommitted() bool { return l.run != nil && l.run.committed }

// unsaved returns the error for the observer if the end of the lease had the error err.
// It returns nil if err shows that Commit has saved the record.
func (l *Lease) unsaved(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCommitted() && errors.Is(err, store.ErrSaved) {
		return nil
	}
	return err
}

// Finish ends a run. In one step the store saves r with its Value, Attempt, Done and
// Retain, and frees the key. Finish saves r if the lease is still held. It also saves r
// after a loss, Release or Locker.Close, unless another run of the key has begun or
// saved since then. It is safe to call with a canceled or nil ctx, and has the time
// limit of Release.
//
// Finish saves nothing and fails with ErrLost after Withdraw, and if another run has
// begun or saved. It also does so if the lease is no longer held and the record has
// expired. After ErrUnavailable, r may be saved or not. The save is then retried in the
// background, unless the lease had been released before. Finish fails with ErrInvalid,
// and does nothing, for a lease that is not of Begin, and if Retain is less than 1 ms.
// A second call returns the result of the first.
func (l *Lease) Finish(ctx context.Context, r store.Record) error {
	return l.save(ctx, &r, nil)
}

// save implements Finish for r. If the value of r is too long, save stores the
// substitute (the parameter instead) in place of r. The substitute may be nil.
func (l *Lease) save(ctx context.Context, r, instead *store.Record) error {
	if err := checkRecord(r); err != nil {
		return fmt.Errorf("core: finish %q: %w: %w", l.name, err, ErrInvalid)
	}
	return l.settle(ctx, "finish", r, instead, false)
}

// FinishLong finishes a run like Finish, with a record r whose value may be longer than
// the store accepts. If r cannot be saved, FinishLong saves the second record in place
// of r, and fails with an error that matches ErrUnavailable. If the server has
// nevertheless stored r, r is not replaced.
//
// A server can refuse a long value by closing the connection, which looks like an
// outage. So FinishLong sends a value of more than 512 KiB only once if the store does
// not answer. If an error shows that nothing was changed, it sends such a value at most
// three times. It sends a shorter value until the store refuses it with ErrInvalid, or
// the tries in the background have sent more than 8 MiB without success.
func (l *Lease) FinishLong(ctx context.Context, r, instead store.Record) error {
	return l.save(ctx, &r, &instead)
}

// Withdraw releases the lease of a run whose work has not begun. In the same step the
// store undoes the run. The run then does not count as an attempt, and the store has
// the record that Begin found. Withdraw has the time limit of Release. A second call
// returns the result of the first.
//
// Withdraw fails like Release, and with ErrLost after Finish. Even if the lease is no
// longer held, the run is undone, unless another run has begun since then. After
// ErrUnavailable the undo continues in the background. It also does so if only this
// process no longer trusts the lease. The undo does not continue if the lease had been
// released before.
//
// Withdraw also releases a lease of Acquire whose work has not begun. KeepFor then has
// no effect, so that another process can do the work.
func (l *Lease) Withdraw(ctx context.Context) error {
	if l.opts.record == nil {
		_, err := l.finish(ctx, "withdraw", nil, true)
		return err
	}
	return l.settle(ctx, "withdraw", nil, nil, true)
}

// settle implements Finish and Withdraw. The first call settles the run, and releases
// the lease unless Release or Close has released it. Later calls return the result of
// the first call.
func (l *Lease) settle(ctx context.Context, op string, r, instead *store.Record, withdraw bool) error {
	if l.opts.record == nil {
		return fmt.Errorf("core: %s %q: not a lease of Begin: %w", op, l.name, ErrInvalid)
	}
	l.run.settling.Do(func() {
		l.run.withdrawn, l.run.instead = withdraw, instead
		err := l.endError(op, errPanicked)
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

// settleLate settles a run whose lease is already released. It leaves nothing to the
// cleanup, because the Locker may be closed.
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
