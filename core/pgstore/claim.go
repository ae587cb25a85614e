package pgstore

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/store"
)

const (
	maxWord = 256 // bytes of a lease or an owner
	// maxLife is the longest time that anything is kept for, so that no date is
	// out of range.
	maxLife = 100 * 365 * 24 * time.Hour
)

// CheckClaim implements store.Checker.
func (s *Store) CheckClaim(c store.Claim) error { return usable("acquire", &c) }

// usable refuses claims that the server would not take, before anything is sent. It takes
// keys with braces, which no Locker sends.
func usable(op string, c *store.Claim) error {
	var fault string
	switch {
	case len(c.Lease) > maxWord:
		fault = "a lease of 1 to 256 bytes is needed"
	case len(c.Owner) > maxWord || len(c.Via) > maxWord:
		fault = "an owner of 1 to 256 bytes is needed"
	case op != "watch" && (min(c.TTL, c.Keep) < 0 || max(c.TTL, c.Keep) > maxLife):
		fault = "nothing lasts for less than no time or for more than a hundred years"
	case (op == "acquire" || op == "release") && c.Record != nil && c.Record.Retain > maxLife:
		fault = "a record is kept for at most a hundred years"
	default:
		return claims.Check("pgstore", op, c, true)
	}
	return fmt.Errorf("pgstore: %s: %s: %w", op, fault, store.ErrInvalid)
}

// millis rounds d up to whole milliseconds.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
