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

// Querier sends statements in a transaction of the caller. It is a *sql.Tx, a wrapper of
// one, or a *sql.Conn with an open transaction. In has the details for gorm.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// CheckToken refuses a stale holder in the caller's own transaction. If the transaction
// commits, token is recorded as seen for resource. Until the transaction is committed
// or rolled back, other transactions that check a token of the same resource wait.
// CheckToken fails with store.ErrLost if a higher token was seen for resource.
//
// Before CheckToken writes, it proves that the transaction is open. If no transaction
// is open, CheckToken fails with store.ErrInvalid. This can happen after a deadlock on
// MariaDB or MySQL. The server rolls the transaction back by itself, and then commits
// each later statement at once. CheckToken also fails with store.ErrInvalid for a nil
// Querier, a *sql.DB, an invalid token or an invalid resource, and if autocommit is
// off. A valid token is at least 1 and at most 2^63-1. No fenced lease has the token 0.
// A valid resource is UTF-8 of 1 to 512 bytes without zero bytes. If the user of the
// transaction lacks a right, or if the tables are missing, CheckToken fails with
// store.ErrUnavailable and names the GRANT or Migrate. Any other error is the
// database's. After an error of CheckToken or of a later statement, roll the
// transaction back, because its further statements would not be fenced. You may repeat
// the transaction.
func (s *Store) CheckToken(ctx context.Context, q Querier, resource string, token uint64) error {
	const op = "sqlstore: check token"
	switch _, db := q.(*sql.DB); {
	case q == nil || db:
		return fmt.Errorf("%s: the Querier is not a transaction: %w", op, store.ErrInvalid)
	case resource == "" || len(resource) > 512 || !utf8.ValidString(resource) || strings.ContainsRune(resource, 0):
		return fmt.Errorf("%s: resource is not UTF-8 without zero bytes (1 to 512 bytes): %w", op, store.ErrInvalid)
	case token == 0 || token > math.MaxInt64:
		return fmt.Errorf("%s: token is out of range (1 to 2^63-1): %w", op, store.ErrInvalid)
	}
	if err := rows.InTransaction(ctx, q, s.place.Dialect); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	highest, err := s.place.Note(ctx, q, resource, token)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	if highest != token {
		return fmt.Errorf("%s: a newer one was seen: %w", op, store.ErrLost)
	}
	return nil
}
