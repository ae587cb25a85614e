package casstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/store"
)

var errNoRecord = fmt.Errorf("the record is nil: %w", store.ErrInvalid)

// Commit releases the hold of c in s and saves the record of c. It works in tx, a
// transaction of the caller in the database of s's Place. The two changes take effect
// if the transaction is committed, and are lost if it is rolled back. Commit
// corresponds to a Release with a record, except that Commit is not retried.
//
// tx.Load must return the newest entry, and prevent other transactions from changing it
// until the end of tx. Commit calls each method at most once. The method's ctx is
// derived from ctx, and is done after two seconds.
//
// Commit fails with store.ErrSaved if c's lease itself was the last to save a record,
// and no run has begun since. Otherwise it fails with store.ErrLost if c's lease has
// not begun the last run, or if another lease has saved a record since. After either
// error Commit has written nothing. After any other error except store.ErrInvalid, the
// transaction must be rolled back.
func Commit(ctx context.Context, s *Store, tx Place, c store.Claim) error {
	const op = "commit"
	if err := s.check("release", &c); err != nil {
		return err
	}
	if c.Record == nil {
		return s.failed(op, errNoRecord)
	}
	ctx, cancel := bounded(ctx) // an earlier transaction may have locked the entry
	defer cancel()
	old, err := tx.Load(ctx, c.Key, Want{Current: true})
	if err != nil {
		return s.failed(op, err)
	}
	at := old
	at.Now = nowOf(old)
	state, err := s.read(at, Want{})
	if err != nil {
		return fmt.Errorf("%s: %s: %w: %w", s.name, op, store.ErrUnsupported, err)
	}
	sum, value := *c.Record, c.Record.Value
	sum.Value = digest(value)
	c.Record = &sum
	wake, err := state.Commit(at.Now, c)
	if err != nil {
		return s.failed(op, err)
	}
	e := encode(state, at.Now, s.usual != nil)
	e.Version, e.Wake, e.Value = version(), wake, value
	won, err := tx.Save(ctx, c.Key, old, e)
	if err == nil && !won {
		err = errNotKept
	}
	return s.failed(op, err)
}

var errNotKept = errors.New("the entry was changed although the transaction had read it to write it")
