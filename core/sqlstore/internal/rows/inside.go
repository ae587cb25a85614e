package rows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/store"
)

// Inside returns the Place in the transaction that is open in q. It writes nothing. It
// fails with store.ErrInvalid if no transaction is open. It fails with
// store.ErrUnsupported if the transaction is in another database or a logical replica.
// It also fails with store.ErrUnsupported if the isolation level is not fit to save an
// answer, or if the session has a time of its own.
func (p *Place) Inside(ctx context.Context, q Querier) (*table.Inside, error) {
	if err := InTransaction(ctx, q, p.Dialect); err != nil {
		return nil, err
	}
	return p.Place.Inside(ctx, caller{q})
}

// Note records token as seen for resource in the open transaction of q, and returns the
// highest token that was seen. If the user lacks a right, or if the tables are missing,
// the error matches store.ErrUnavailable and names the remedy. Any other error is the
// database's.
func (p *Place) Note(ctx context.Context, q Querier, resource string, token uint64) (highest uint64, err error) {
	var n int64
	tx := caller{q}
	if _, err = tx.Change(ctx, p.Dialect.Note(resource, token)); err == nil {
		err = tx.One(ctx, p.Dialect.Seen(resource), &n)
	}
	switch {
	case err == nil:
		return uint64(n), nil
	case IsDenied(err):
		return 0, fmt.Errorf("%w: the user of the transaction lacks a right, it needs %s: %w", store.ErrUnavailable, p.Dialect.TokenRights(), err)
	case isMissing(err):
		return 0, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return 0, err
}

type caller struct{ q Querier }

// Change implements table.Tx.
func (c caller) Change(ctx context.Context, st dialect.Statement) (int64, error) {
	result, err := c.q.ExecContext(ctx, st.Text, st.Args...)
	if err != nil {
		return 0, advised(err)
	}
	return result.RowsAffected()
}

// One implements table.Tx.
func (c caller) One(ctx context.Context, st dialect.Statement, to ...any) error {
	err := c.q.QueryRowContext(ctx, st.Text, st.Args...).Scan(to...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return table.ErrNoRow
	case err != nil:
		return advised(err)
	}
	return nil
}

// advised returns err with the remedy. It returns the error of a missing right
// unchanged, because Check does not test the rights of the transaction's user. The
// operation names these rights.
func advised(err error) error {
	switch {
	case isSecured(err):
		return fmt.Errorf("row-level security refuses the user of the transaction: disable it for the tables of the locks, or ALTER ROLE … BYPASSRLS: %w", err)
	case IsDenied(err):
		return err
	}
	return fmt.Errorf("%s%w", advice(err), err)
}

// IsWrongState implements table.Tx.
func (caller) IsWrongState(err error) bool { return isWrongState(err) }

// IsMissing implements table.Tx.
func (caller) IsMissing(err error) bool { return isMissing(err) }

// IsDenied implements table.Tx.
func (caller) IsDenied(err error) bool { return IsDenied(err) }
