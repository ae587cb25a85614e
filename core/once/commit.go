package once

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// Saver is a transaction of the caller in which an answer can be saved. sqlstore.In and
// pgstore.In return Savers.
type Saver interface {
	// SaveRun saves c.Record in the transaction and releases the claim c in the same
	// step. SaveRun takes the place of s.Release; s is the store of the run. It saves
	// only if c's lease has begun the last run, and no record was saved since.
	//
	// It fails with store.ErrUnsupported if the answers of s are not in the database of
	// the transaction, and with store.ErrInvalid if no transaction is open. In both
	// cases nothing was written. It fails with store.ErrSaved if the lease was the last
	// to save a record and no run has begun since. It fails with store.ErrLost if
	// another lease has begun a run or saved a record since. After any other error the
	// transaction must be rolled back.
	SaveRun(ctx context.Context, s store.Store, c store.Claim) error
}

// Commit saves a as the answer of the run of ctx, in the caller's own transaction tx.
// So the effect and the answer of the run are committed together, or neither is. The
// work calls Commit as its last statement, and then commits the transaction and
// returns.
//
//	tx, err := db.BeginTx(ctx, nil)
//	...
//	a := once.Answer{Value: receipt}
//	if err := once.Commit(ctx, sqlstore.In(tx), a); err != nil {
//		return once.Answer{}, err // after a Rollback
//	}
//	return a, tx.Commit()
//
// With pgx the saver is pgstore.In(tx).
//
// Commit saves only if no other run of the call has begun. So a paused process whose
// run was taken over cannot commit. From Commit until the end of the transaction the
// row of the call is locked.
//
// The database decides the result of the run, whatever fn returns. If the transaction
// was committed, Do returns a, even after an error of fn. For example, the reply to
// COMMIT may have been lost. If the transaction was rolled back, the run has failed. Do
// then returns an error even if fn returned no error. After a Commit that succeeds, a
// loss of the lease no longer cancels the context of fn.
//
// Commit is for the outermost level of the transaction. A rollback to a savepoint, as
// in a nested transaction of gorm, can undo the effect alone or the answer alone.
//
// After an error of Commit the transaction must be rolled back. fn may repeat the
// transaction with another Commit. If no Commit is committed, Do fails even if fn
// returns no error. But after a first Commit that fails with core.ErrUnsupported, Do
// saves the result of fn, as without Commit. A Commit that fails because of NotFinal
// does not change the result of Do.
//
// Commit fails before anything is written
//   - with core.ErrInvalid if ctx is not the context of a run whose fn is running, or
//     if NotFinal has marked the run's answer,
//   - with core.ErrInvalid if tx is nil, has no open transaction or already has this
//     run's answer,
//   - with core.ErrInvalid if a.Value is longer than 32 MiB or than the database accepts,
//   - with core.ErrUnsupported if the store of the run does not store answers in the
//     database of tx.
//
// It fails with core.ErrLost if another run has begun, or if this run has committed its
// answer in another transaction. It also fails with core.ErrLost if Locker.Close has
// released the lease because the context of Close was done. Any other error is an error
// of the database.
//
// The time of Retain begins with Commit. So Retain must be longer than the rest of the
// transaction. The next call does not find an answer that expired before COMMIT.
//
// For nested runs, Commit applies to the innermost run.
func Commit(ctx context.Context, tx Saver, a Answer) error {
	r, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return fmt.Errorf("once: commit: ctx is not that of a run: %w", core.ErrInvalid)
	}
	if err := r.commit(ctx, tx, a); err != nil {
		return fmt.Errorf("once: commit %q: %w", r.commits.once.labelOf(r.commits.call), err)
	}
	return nil
}

// commits is the state of the calls of Commit in an attempt.
type commits struct {
	once  *Once
	lease *core.Lease
	call  *Call

	mu     sync.Mutex
	saver  Saver  // the transaction of the last Commit that has saved, or nil
	answer Answer // the answer that this Commit has saved
}

// commit implements Commit. After a failed commit, the run succeeds only if another
// commit succeeds. In two exceptions the result of fn decides. They are a first commit
// that fails with core.ErrUnsupported, and a commit after NotFinal.
func (r *attempt) commit(ctx context.Context, tx Saver, a Answer) error {
	m := &r.commits
	m.mu.Lock()
	defer m.mu.Unlock()
	first := r.answer.CompareAndSwap(isFinal, isCommitted)
	switch {
	case !first && r.answer.Load() != isCommitted:
		return fmt.Errorf("the answer is marked as not final, or fn has returned: %w", core.ErrInvalid)
	case tx == nil:
		return fmt.Errorf("the transaction is nil: %w", core.ErrInvalid)
	case len(a.Value) > maxValue:
		return fmt.Errorf("the answer has %d bytes (at most %d): %w", len(a.Value), maxValue, core.ErrInvalid)
	}
	a.Value = bytes.Clone(a.Value)
	s, value := done, a.Value
	if a.Unreplayable {
		s, value = unreplayable, nil
	}
	err := m.lease.Commit(ctx, m.once.settled(m.call, s, r.number, value), tx.SaveRun)
	switch {
	case err == nil:
		m.saver, m.answer = tx, a
	case errors.Is(err, store.ErrSaved) && same(m.saver, tx):
		return fmt.Errorf("the answer is saved in this transaction: %w", core.ErrInvalid)
	case first && errors.Is(err, core.ErrUnsupported):
		r.answer.CompareAndSwap(isCommitted, isFinal)
	}
	return err
}

// same reports whether a and b are the same transaction.
func same(a, b Saver) bool { return reflect.ValueOf(a).Comparable() && a == b }

// committed returns the result of a run that has called Commit. worked is the error of
// fn. saving is the error of Finish, which has tried to save the run as failed. Finish
// succeeds only if no answer was committed.
func (r *attempt) committed(worked, saving error, t *notice) (Outcome, error) {
	m := &r.commits
	m.mu.Lock()
	defer m.mu.Unlock()
	out := Outcome{Attempt: r.number}
	if err, ok := unmarked(worked); ok {
		worked = err
	}
	switch {
	case errors.Is(saving, store.ErrSaved) && m.saver != nil:
		t.worked, t.saved, out.Value = nil, nil, m.answer.Value
		return out, nil
	case m.saver != nil && saving != nil && !errors.Is(saving, core.ErrLost):
		out.Value, t.worked = m.answer.Value, nil
		err := fmt.Errorf("once: do %q: unknown whether the answer was committed: %w", m.once.labelOf(m.call), saving)
		if worked != nil {
			// %v lets callers match only the error of saving.
			err = fmt.Errorf("%w (%v)", err, worked)
		}
		return out, err
	case worked != nil:
		return out, unsettled(worked, saving)
	}
	t.worked = errRolledBack
	if saving != nil {
		return out, saving
	}
	return out, fmt.Errorf("once: do %q: %w", m.once.labelOf(m.call), errRolledBack)
}
