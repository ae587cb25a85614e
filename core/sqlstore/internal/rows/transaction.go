package rows

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/store"
)

// Querier sends statements in a transaction of the caller.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// InTransaction proves that the statements of q are in a transaction of the caller, and
// are not committed one by one. Otherwise it fails with store.ErrInvalid. If the
// database cannot answer, it fails with the database's error.
func InTransaction(ctx context.Context, q Querier, d dialect.Dialect) error {
	ok, err := table.Prove(ctx, caller{q}, d.Proof())
	if errors.Is(err, sql.ErrTxDone) {
		return fmt.Errorf("the transaction is done: %w: %w", store.ErrInvalid, err)
	}
	if err != nil || ok {
		return err
	}
	return fmt.Errorf("there is no open transaction, or autocommit is off: give it a *sql.Tx, or what wraps one, and roll that back "+
		"after an error, as MySQL and MariaDB do by themselves after a deadlock: %w", store.ErrInvalid)
}

// idle fails with table.ErrOpen if c has an open transaction. If the statements
// themselves check this, idle does nothing. It asks the driver first, because the
// database's proof takes up to two round trips.
func (p *Place) idle(ctx context.Context, c *sql.Conn) error {
	proof := p.Dialect.Idle()
	if proof.Succeed == nil || p.looks.Load() {
		return nil
	}
	ok, known := isIdle(c)
	if !known && proof.Unless != "" {
		if err := c.QueryRowContext(ctx, proof.Unless).Scan(&ok); err != nil {
			return err
		}
		known = ok
		p.looks.Store(ok)
	}
	if !known {
		var err error
		if ok, err = table.Prove(ctx, caller{c}, proof); err != nil {
			return err
		}
	}
	if !ok {
		return table.ErrOpen
	}
	return nil
}

// isIdle reports whether pgx or go-sql-driver/mysql knows that c has no open
// transaction. The state is unknown for other drivers. It is also unknown if
// go-sql-driver/mysql reports an open transaction, because an error may have rolled it
// back.
func isIdle(c *sql.Conn) (idle, known bool) {
	_ = c.Raw(func(conn any) error {
		v := reflect.ValueOf(conn)
		if t := v.Type(); t.String() == "*mysql.mysqlConn" {
			status := v.Elem().FieldByName("status") // the server's status in the last reply
			idle = status.CanUint() && status.Uint()&inTransaction == 0
			known = idle
			return nil
		}
		for _, get := range []func() reflect.Value{
			func() reflect.Value { return v.MethodByName("Conn") },
			func() reflect.Value { return v.MethodByName("PgConn") },
			func() reflect.Value { return v.MethodByName("TxStatus") },
		} {
			method := get()
			if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
				return nil
			}
			v = method.Call(nil)[0]
		}
		known = v.Kind() == reflect.Uint8
		idle = known && v.Uint() == 'I'
		return nil
	})
	return idle, known
}

// inTransaction is the bit of MySQL's status for an open transaction.
const inTransaction = 1

// isWrongState reports whether a statement has failed because a transaction is open, or
// because no transaction is open.
func isWrongState(err error) bool {
	return err != nil && (stateOf(err) == "25P01" || slices.Contains([]uint64{1305, 1568}, field(err, "Number")) ||
		strings.Contains(err.Error(), "within a transaction")) // SQLite's error
}
