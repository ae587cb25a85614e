package zkstore

import (
	"fmt"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/store"
)

// CheckClaim implements store.Checker.
func (s *Store) CheckClaim(c store.Claim) error { return usable("acquire", c) }

// usable returns an error for claims that are refused before anything is sent.
func usable(op string, c store.Claim) error {
	if c.Record != nil && (op == "acquire" || op == "release") {
		return fmt.Errorf("zkstore: %s: a session's nodes keep no records: %w", op, store.ErrUnsupported)
	}
	return claims.Check("zkstore", op, &c, false)
}
