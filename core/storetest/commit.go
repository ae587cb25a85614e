package storetest

import (
	"context"
	"errors"

	"github.com/lockkit/lockkit/core/store"
)

// Transaction is a transaction of the caller in the database of a store. It is a
// once.Saver with Commit and Rollback.
type Transaction interface {
	SaveRun(ctx context.Context, s store.Store, c store.Claim) error
	Commit() error
	Rollback() error
}

// commitCases test records that are saved in a transaction of the caller.
var commitCases = []testCase{
	{"commit saves and releases", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.committed(e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
		e.isFree()
	}},
	{"nothing is saved before the commit", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		tx := e.saved(e.done(c, "answer"))
		g, err := e.other.Acquire(e.Context(), e.run("again"))
		if err == nil {
			e.Errorf("got the grant %+v, want none", g)
		}
		e.end(tx.Commit)
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"rollback leaves the run", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.end(e.saved(e.done(c, "answer")).Rollback)
		e.extend(e.store, c)
		e.end(e.saved(e.done(c, "answer")).Rollback)
		e.release(e.store, e.failed(c, "failed", 1))
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
	{"run saves once", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		tx := e.saved(e.done(c, "answer"))
		e.notSaved(tx, e.done(c, "another"), store.ErrSaved)
		e.notSaved(tx, e.done(c, "answer"), store.ErrSaved)
		e.end(tx.Commit)
		for _, answer := range []string{"answer", "another"} {
			tx := e.begin()
			e.notSaved(tx, e.done(c, answer), store.ErrSaved)
			e.end(tx.Rollback)
		}
		e.answered(e.other, e.run("again"), "answer")
	}},
	// The error reports that another record was committed.
	{"release with another record", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.committed(e.done(c, "answer"))
		for range 2 {
			err := e.other.Release(e.Context(), e.failed(c, "failed", 1))
			if !errors.Is(err, store.ErrSaved) || !errors.Is(err, store.ErrLost) {
				e.Errorf("release: got %v, want %v", err, store.ErrSaved)
			}
		}
		e.release(e.other, e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
	}},
	// A commit succeeds although extensions have changed the key since the run began.
	{"commit after extensions", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		for range 3 {
			e.extend(e.store, c)
		}
		e.committed(e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
	}},
	// A run whose hold has expired commits if no other run has begun.
	{"expired run commits", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		c.TTL = e.units(1)
		e.begins(e.store, c, "begun", 1)
		e.outlive(c.TTL)
		e.committed(e.done(c, "answer"))
		e.answered(e.other, e.run("again"), "answer")
	}},
	{"commit after another run", []Feature{Records}, func(e *env) {
		c, next := e.run("begun"), e.run("again")
		c.TTL = e.units(1)
		e.begins(e.store, c, "begun", 1)
		e.outlive(c.TTL)
		e.begins(e.other, next, "begun", 2)
		e.loses(e.done(c, "stale"))
		e.extend(e.other, next)
		e.release(e.other, e.done(next, "answer"))
		e.loses(e.done(c, "stale"))
		e.answered(e.other, e.run("once more"), "answer")
	}},
	// A run that was undone, has failed or never began does not commit.
	{"commit without a run", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.loses(e.done(c, "answer"))
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, undone(c))
		e.loses(e.done(c, "answer"))
		c = e.run("begun")
		e.begins(e.store, c, "begun", 1)
		e.release(e.store, e.failed(c, "failed", 1))
		e.loses(e.done(c, "answer"))
		e.begins(e.other, e.run("again"), "failed", 2)
	}},
	{"commit without a record", []Feature{Records}, func(e *env) {
		c := e.run("begun")
		e.begins(e.store, c, "begun", 1)
		plain := c
		plain.Record = nil
		tx := e.begin()
		e.notSaved(tx, plain, store.ErrInvalid)
		e.end(tx.Rollback)
		e.committed(e.done(c, "answer"))
	}},
}

func (e *env) begin() Transaction {
	e.Helper()
	tx := e.h.Begin(e, e.store)
	e.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (e *env) end(end func() error) {
	e.Helper()
	if err := end(); err != nil {
		e.Fatalf("the end of a transaction: got %v, want nil", err)
	}
}

// saved saves the record of c in a new transaction, which it returns open.
func (e *env) saved(c store.Claim) Transaction {
	e.Helper()
	tx := e.begin()
	if err := tx.SaveRun(e.Context(), e.store, c); err != nil {
		e.Fatalf("save: got %v, want nil", err)
	}
	return tx
}

func (e *env) committed(c store.Claim) {
	e.Helper()
	e.end(e.saved(c).Commit)
}

// notSaved saves the record of c in tx, and fails the case unless tx refuses it with the
// error want.
func (e *env) notSaved(tx Transaction, c store.Claim, want error) {
	e.Helper()
	if err := tx.SaveRun(e.Context(), e.store, c); !errors.Is(err, want) {
		e.Errorf("save: got %v, want %v", err, want)
	}
}

// loses tries to save the record of c in a new transaction, although the run of c cannot
// save any more. It fails the case unless the record is refused with store.ErrLost, and
// commits the transaction.
func (e *env) loses(c store.Claim) {
	e.Helper()
	tx := e.begin()
	err := tx.SaveRun(e.Context(), e.store, c)
	if !errors.Is(err, store.ErrLost) {
		e.Errorf("save: got %v, want %v", err, store.ErrLost)
	}
	e.end(tx.Commit) // nothing of the record is committed
}
