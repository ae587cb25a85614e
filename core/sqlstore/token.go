package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
)

// Querier is a transaction of the caller: a *sql.Tx, a wrapper of one, or a *sql.Conn
// with an open transaction.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// CheckToken refuses a stale holder in the caller's own transaction. It records token as
// seen for resource, if the transaction commits. Until then no other transaction checks
// a token for resource. CheckToken fails with store.ErrLost if a higher token was seen
// for resource.
//
// Before it writes, CheckToken proves that the transaction is open. It fails with
// store.ErrInvalid if the transaction is not open: MariaDB and MySQL roll it back by
// themselves after a deadlock, and commit later statements. It also fails with
// store.ErrInvalid for a token of 0, which no lease has, and if autocommit is off. Any
// other error is the database's. After such an error, and after an error of a later
// statement, the transaction must be rolled back, and may be repeated: otherwise its
// later statements would not be fenced.
func (s *Store) CheckToken(ctx context.Context, q Querier, resource string, token uint64) error {
	const op = "sqlstore: check token"
	switch _, db := q.(*sql.DB); {
	case q == nil || db:
		return fmt.Errorf("%s: a transaction is needed: %w", op, store.ErrInvalid)
	case resource == "" || len(resource) > 512 || !utf8.ValidString(resource) || strings.ContainsRune(resource, 0):
		return fmt.Errorf("%s: a resource of 1 to 512 bytes of UTF-8 is needed: %w", op, store.ErrInvalid)
	case token == 0 || token > math.MaxInt64:
		return fmt.Errorf("%s: %d is no token of any store: %w", op, token, store.ErrInvalid)
	}
	if err := rows.InTransaction(ctx, q, s.place.Dialect); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	note, seen := s.place.Dialect.Note(resource, token), s.place.Dialect.Seen(resource)
	if _, err := q.ExecContext(ctx, note.Text, note.Args...); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	var highest int64
	if err := q.QueryRowContext(ctx, seen.Text, seen.Args...).Scan(&highest); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if uint64(highest) != token {
		return fmt.Errorf("%s: a newer one was seen: %w", op, store.ErrLost)
	}
	return nil
}
