package sqlstore

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/store"
)

// Tx is a transaction of the caller in which answers are saved. It implements
// once.Saver.
type Tx struct{ q Querier }

// In returns the transaction of the caller in q, for once.Commit. q is a *sql.Tx, or a
// wrapper of one, such as gorm's tx.Statement.ConnPool. With PrepareStmt, ConnPool is a
// *gorm.PreparedStmtTX, and q must be the field Tx of ConnPool.
//
// The runs must be in a Store in the database of the transaction. Before Commit writes,
// it proves that the transaction is open. On PostgreSQL the transaction must be at the
// level READ COMMITTED, which is the default. On SQLite it should begin IMMEDIATE. On
// MariaDB and MySQL Commit fails with core.ErrUnsupported if the session of the
// transaction has set its variable timestamp.
//
// Commit fails with core.ErrUnsupported if the transaction is on another server than
// the locks, such as a writable replica of MariaDB or MySQL. Commit compares the
// server's ID with the ID that the Store has last read. If they are equal, Commit sends
// nothing on the Store's own connections. So Commit does not detect that the locks have
// moved to another server during the run.
func In(q Querier) Tx { return Tx{q} }

// saver is implemented by *Store, and by types that embed it.
type saver interface {
	commit(ctx context.Context, q Querier, c store.Claim) error
}

// SaveRun implements once.Saver.
func (t Tx) SaveRun(ctx context.Context, s store.Store, c store.Claim) error {
	const op = "sqlstore: commit"
	tx, isTx := t.q.(*sql.Tx)
	if _, isPool := t.q.(*sql.DB); t.q == nil || isPool || isTx && tx == nil {
		return fmt.Errorf("%s: the Querier is not a transaction: %w", op, store.ErrInvalid)
	}
	in, ok := s.(saver)
	if !ok {
		return fmt.Errorf("%s: the run is stored by a %T, and not in a database of sqlstore: %w", op, s, store.ErrUnsupported)
	}
	return in.commit(ctx, t.q, c)
}

func (s *Store) commit(ctx context.Context, q Querier, c store.Claim) error {
	in, err := s.place.Inside(ctx, q)
	if err != nil {
		return fmt.Errorf("sqlstore: commit: %w", err)
	}
	return casstore.Commit(ctx, s.Store, in, c)
}
