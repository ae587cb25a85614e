package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/store"
)

// Tx is a transaction of the caller in which answers are saved. It implements
// once.Saver.
type Tx struct{ tx pgx.Tx }

// In returns the transaction tx for once.Commit. The isolation level of tx must be READ
// COMMITTED, the default.
//
// The runs must be in a Store of this package, in the database of tx. Before Commit
// writes, it proves that tx is open. For a transaction of database/sql, use sqlstore.In
// and a sqlstore on the same database.
func In(tx pgx.Tx) Tx { return Tx{tx} }

// saver is implemented by *Store, and by types that embed it.
type saver interface {
	commit(ctx context.Context, tx pgx.Tx, c store.Claim) error
}

// SaveRun implements once.Saver.
func (t Tx) SaveRun(ctx context.Context, s store.Store, c store.Claim) error {
	const op = "pgstore: commit"
	if t.tx == nil {
		return fmt.Errorf("%s: the transaction is nil: %w", op, store.ErrInvalid)
	}
	in, ok := s.(saver)
	if !ok {
		return fmt.Errorf("%s: the run is stored by a %T, and not by pgstore: %w", op, s, store.ErrUnsupported)
	}
	return in.commit(ctx, t.tx, c)
}

func (s *Store) commit(ctx context.Context, tx pgx.Tx, c store.Claim) error {
	open, err := isOpen(ctx, tx)
	if err == nil && !open {
		err = fmt.Errorf("there is no open transaction: %w", store.ErrInvalid)
	}
	var in *table.Inside
	if err == nil {
		in, err = s.place.Inside(ctx, caller{tx})
	}
	if err != nil {
		return wrap("commit", err)
	}
	return casstore.Commit(ctx, s.Store, in, c)
}

// isOpen reports whether tx is open, and its connection has an open transaction.
func isOpen(ctx context.Context, tx pgx.Tx) (bool, error) {
	open, err := table.Prove(ctx, caller{tx}, dialect.PostgreSQL{}.Proof())
	if errors.Is(err, pgx.ErrTxClosed) {
		return false, nil
	}
	return open, err
}

type caller struct{ tx pgx.Tx }

// Change implements table.Tx.
func (c caller) Change(ctx context.Context, st dialect.Statement) (int64, error) {
	tag, err := c.tx.Exec(ctx, st.Text, arguments(st)...)
	return tag.RowsAffected(), err
}

// One implements table.Tx.
func (c caller) One(ctx context.Context, st dialect.Statement, to ...any) error {
	err := c.tx.QueryRow(ctx, st.Text, arguments(st)...).Scan(to...)
	if errors.Is(err, pgx.ErrNoRows) {
		return table.ErrNoRow
	}
	return err
}

// arguments returns the arguments of st for pgx, with a mode in which pgx prepares
// nothing. Behind a pooler a prepared statement may not exist at its next use.
func arguments(st dialect.Statement) []any {
	return append([]any{pgx.QueryExecModeExec}, st.Args...)
}

// IsWrongState implements table.Tx.
func (caller) IsWrongState(err error) bool { return hasCode(err, codeNoTransaction) }

// IsMissing implements table.Tx.
func (caller) IsMissing(err error) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply) && (reply.Code == "42P01" || reply.Code == "3F000")
}

// IsDenied implements table.Tx.
func (caller) IsDenied(err error) bool { return hasCode(err, codeRights) && !ofRows(err) }
