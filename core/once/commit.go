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

// Saver is a transaction of the caller in which an answer can be saved. sqlstore.In returns one.
type Saver interface {
	// SaveRun saves c.Record in the transaction, in place of the Release of c in s, the store
	// of the run: on the condition that c's lease has begun the last run, and that nothing was
	// saved since. The claim is given up in the same step.
	//
	// It fails with store.ErrUnsupported if the answers of s are not in the database of the
	// transaction, and with store.ErrInvalid if no transaction is open. Nothing was written then.
	// It fails with store.ErrSaved if the lease has saved, and with store.ErrLost if another one
	// has begun a run or has saved. After any other error the transaction is to be rolled back.
	SaveRun(ctx context.Context, s store.Store, c store.Claim) error
}

// Commit saves a as the answer of the run of ctx, in the caller's own transaction tx: its
// effect and its answer are committed together, or neither is. The work calls it as its last
// statement, and then commits the transaction and returns.
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
// Commit saves only if no other run of the call has begun. So a holder that was paused, and
// whose run was taken over, cannot commit. From Commit until the transaction ends the row of the
// call is locked.
//
// The database decides how the run ends, whatever fn returns. If the transaction was
// committed, Do returns a, also where fn returned an error since the reply to its COMMIT
// was lost. If it was rolled back, the run has failed, and Do returns an error where fn
// returned none. While fn runs after Commit, its context does not end with core.ErrLost.
//
// Commit is for the outermost level of the transaction. To roll back to a savepoint, as a nested
// transaction of gorm does, takes back the effect or the answer alone.
//
// After an error the transaction is to be rolled back, and may be repeated with another Commit.
// If fn returns no error then, Do fails. After core.ErrUnsupported of the first Commit it does
// not: it saves what fn returns, as without Commit.
//
// Commit fails with core.ErrInvalid, before anything is written, if ctx is not that of a run
// whose fn is running, if NotFinal has marked its answer, if tx is nil or no transaction is
// open in it, if this run has saved in it already, and if a.Value is longer than 32 MiB or than
// the database takes. It fails with core.ErrUnsupported, before anything is written, if the
// store of the run does not keep answers in the database of tx. It fails with core.ErrLost if
// another run has begun, and if this one has committed its answer in another transaction. Any
// other error is the database's.
//
// Of runs inside of one another Commit is for the innermost one.
func Commit(ctx context.Context, tx Saver, a Answer) error {
	r, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return fmt.Errorf("once: commit: ctx is not that of a run: %w", core.ErrInvalid)
	}
	if err := r.commit(ctx, tx, a); err != nil {
		return fmt.Errorf("once %s: %w", r.commits.once.labelOf(r.commits.call), err)
	}
	return nil
}

// commits are the Commits of an attempt.
type commits struct {
	once  *Once
	lease *core.Lease
	call  *Call

	mu     sync.Mutex
	saver  Saver  // of the last one that has saved, nil if none has
	answer Answer // that it has saved
}

// commit is Commit. Where it fails fn must not succeed, unless nothing was asked of tx since
// the store of the run is another one.
func (r *attempt) commit(ctx context.Context, tx Saver, a Answer) error {
	m := &r.commits
	m.mu.Lock()
	defer m.mu.Unlock()
	first := r.answer.CompareAndSwap(isFinal, isCommitted)
	switch {
	case !first && r.answer.Load() != isCommitted:
		return fmt.Errorf("commit: the answer is marked as not final, or fn has returned: %w", core.ErrInvalid)
	case tx == nil:
		return fmt.Errorf("commit: the transaction is nil: %w", core.ErrInvalid)
	case len(a.Value) > maxValue:
		return fmt.Errorf("commit: the answer has %d bytes, at most %d are allowed: %w", len(a.Value), maxValue, core.ErrInvalid)
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
		return fmt.Errorf("commit: the answer is saved in this transaction: %w", core.ErrInvalid)
	case first && errors.Is(err, core.ErrUnsupported):
		r.answer.CompareAndSwap(isCommitted, isFinal)
	}
	return err
}

// same reports whether a and b are the same transaction.
func same(a, b Saver) bool { return reflect.ValueOf(a).Comparable() && a == b }

// committed returns what has become of a run that has called Commit, and whose work has
// returned worked. Saving is whether its failure could be saved, which says that nothing was
// committed.
func (r *attempt) committed(worked, saving error, t *telling) (Outcome, error) {
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
		err := fmt.Errorf("once %s: whether the answer was committed is not known: %w", m.once.labelOf(m.call), saving)
		if worked != nil {
			err = fmt.Errorf("%w (%v)", err, worked) // which says less
		}
		return out, err
	case worked != nil:
		return out, unsettled(worked, saving)
	}
	t.worked = errRolledBack
	if saving != nil {
		return out, saving
	}
	return out, fmt.Errorf("once %s: %w", m.once.labelOf(m.call), errRolledBack)
}
