package rows

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// Querier is what a caller has a transaction in.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

var errOutside = fmt.Errorf("there is no open transaction: give it a *sql.Tx, or what wraps one, and roll it back "+
	"after an error, as MySQL and MariaDB do by themselves after a deadlock: %w", store.ErrInvalid)

// InTransaction proves that what q sends is in a transaction of the caller, and not committed
// by itself. It fails with store.ErrInvalid if that is not so, and with the database's error if
// it cannot say.
func InTransaction(ctx context.Context, q Querier, d dialect.Dialect) error {
	proof := d.Proof()
	if proof.Fail != "" {
		_, err := q.ExecContext(ctx, proof.Fail)
		switch {
		case err == nil:
			return errOutside
		case strings.Contains(err.Error(), "within a transaction"): // SQLite
			return nil
		}
		return err
	}
	for _, text := range proof.Succeed {
		_, err := q.ExecContext(ctx, text)
		switch {
		case stateOf(err) == "25P01", field(err, "Number") == 1305:
			return errOutside
		case err != nil:
			return err
		}
	}
	if proof.True == "" {
		return nil
	}
	var alone bool
	if err := q.QueryRowContext(ctx, proof.True).Scan(&alone); err != nil {
		return err
	}
	if !alone {
		return fmt.Errorf("autocommit is off, so that a transaction is not known from the next one: set autocommit=1 in the DSN: %w", store.ErrInvalid)
	}
	return nil
}
