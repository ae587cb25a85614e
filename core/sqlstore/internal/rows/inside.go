package rows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
)

// Inside returns the Place in the transaction that is open in q. It writes nothing. It
// fails with store.ErrInvalid if no transaction is open. It fails with
// store.ErrUnsupported if the transaction is in another database or a logical replica,
// or if its isolation level is not fit to save an answer.
func (p *Place) Inside(ctx context.Context, q Querier) (*table.Inside, error) {
	if err := InTransaction(ctx, q, p.Dialect); err != nil {
		return nil, err
	}
	return p.Place.Inside(ctx, caller{q})
}

// caller implements table.Tx on q.
type caller struct{ q Querier }

// Change implements table.Tx.
func (c caller) Change(ctx context.Context, st dialect.Statement) (int64, error) {
	result, err := c.q.ExecContext(ctx, st.Text, st.Args...)
	if err != nil {
		return 0, fmt.Errorf("%s%w", advice(err), err)
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
		return fmt.Errorf("%s%w", advice(err), err)
	}
	return nil
}

// IsWrongState implements table.Tx.
func (caller) IsWrongState(err error) bool { return isWrongState(err) }

// IsMissing implements table.Tx.
func (caller) IsMissing(err error) bool { return isMissing(err) }
