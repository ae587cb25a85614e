package rows

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// outside is a session of MariaDB without a transaction, as after a deadlock.
type outside struct{ t *testing.T }

// sqlError is an error like those of MySQL's driver.
type sqlError struct{ Number uint16 }

func (sqlError) Error() string { return "SAVEPOINT lockkit does not exist" }

func (o outside) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	switch query {
	case "SAVEPOINT lockkit":
		return driver.RowsAffected(0), nil
	case "RELEASE SAVEPOINT lockkit":
		return nil, sqlError{1305}
	}
	o.t.Fatalf("%q was sent outside a transaction", query)
	return nil, nil
}

func (o outside) QueryRowContext(_ context.Context, query string, _ ...any) *sql.Row {
	o.t.Fatalf("%q was sent outside a transaction", query)
	return nil
}

// TestInside_NoTransaction checks that nothing is written if the database has rolled
// back the transaction without its caller's knowledge.
func TestInside_NoTransaction(t *testing.T) {
	t.Parallel()
	p := New(nil, dialect.MySQL{})
	if in, err := p.Inside(t.Context(), outside{t}); !errors.Is(err, store.ErrInvalid) || in != nil {
		t.Errorf("got %v and %v, want %v", in, err, store.ErrInvalid)
	}
}
