package zkstore

import (
	"fmt"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/claims"
)

// CheckClaim implements core.Checker.
func (s *Store) CheckClaim(c core.Claim) error { return usable("acquire", c) }

// usable refuses claims before anything is sent.
func usable(op string, c core.Claim) error {
	if c.Record != nil && (op == "acquire" || op == "release") {
		return fmt.Errorf("zkstore: %s: a session's nodes keep no records: %w", op, core.ErrUnsupported)
	}
	return claims.Check("zkstore", op, &c, false)
}
