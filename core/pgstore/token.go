package pgstore

import (
	"context"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/lockkit/lockkit/core/internal/brief"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// CheckToken refuses the transaction of a stale holder. It records the newest token that
// was used for resource. If token is older, CheckToken fails with store.ErrLost, and the
// caller must roll back. The same token can be used again. Call CheckToken in the
// transaction tx that changes the resource, before the changes:
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if err := pgstore.CheckToken(ctx, tx, "account:42", lease.Token()); err != nil {
//			return err
//		}
//		_, err := tx.Exec(ctx, "UPDATE accounts SET …")
//		return err
//	})
//
// Until tx is committed or rolled back, it blocks other transactions that check a token
// of the same resource. So each transaction sees the newest token, even if its holder
// was paused. Transactions that check several resources must do so in the same order,
// as with any rows. Under REPEATABLE READ and SERIALIZABLE a blocked transaction can
// fail with a serialization failure (SQLSTATE 40001). The caller must then repeat the
// transaction.
//
// All tokens of a resource must come from one store, of any kind. The newest token is
// stored in lockkit.seen until its row is deleted. Delete the row together with the
// resource, and not before. The database must have the kit's tables (Migrate). The locks
// can be in another database. If the user of the transaction lacks a right, CheckToken
// fails with store.ErrUnavailable and names the GRANT.
//
// CheckToken fails with store.ErrInvalid, before it sends anything, for these arguments:
//   - a nil tx;
//   - a token of 0, which no fenced lease has, or a token above 2^63-1;
//   - a resource that is empty, has more than 512 bytes, is not valid UTF-8, or contains
//     a zero byte.
func CheckToken(ctx context.Context, tx pgx.Tx, resource string, token uint64) error {
	switch {
	case tx == nil:
		return fmt.Errorf("pgstore: check token: tx is nil: %w", store.ErrInvalid)
	case resource == "" || len(resource) > 512 || !utf8.ValidString(resource) || strings.ContainsRune(resource, 0):
		return fmt.Errorf("pgstore: check token: resource is not UTF-8 without zero bytes (1 to 512 bytes): %w", store.ErrInvalid)
	case token == 0:
		return fmt.Errorf("pgstore: check token: token is 0, the lease is not fenced: %w", store.ErrInvalid)
	case token > math.MaxInt64:
		return fmt.Errorf("pgstore: check token: token is out of range (1 to 2^63-1): %w", store.ErrInvalid)
	}
	// The row is locked even if the condition of the WHERE is false.
	const note = `INSERT INTO lockkit.seen AS s (resource, token) VALUES ($1, $2)
		ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token WHERE s.token <= EXCLUDED.token`
	tag, err := tx.Exec(ctx, note, pgx.QueryExecModeExec, resource, int64(token))
	if hasCode(err, codeRights) && !ofRows(err) {
		// Check does not test these rights, because another user may call CheckToken.
		err = fmt.Errorf("%w: the user lacks a right, it needs %s: %w", store.ErrUnavailable, dialect.PostgreSQL{}.TokenRights(), brief.Error(err))
		return wrap("check token", err)
	}
	if err != nil {
		return wrap("check token", verdict(err))
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("pgstore: check token: a newer one was seen: %w", store.ErrLost)
	}
	return nil
}
