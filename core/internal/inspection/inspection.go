// Package inspection contains the common parts of this repository's store.Inspectors.
package inspection

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

// CheckRevoke returns store.ErrInvalid for a revoke that is not allowed.
func CheckRevoke(op, hold string, keep time.Duration) error {
	if hold == "" || len(hold) > 64 {
		return fmt.Errorf("%s: the ID of the hold has %d bytes (1 to 64): %w", op, len(hold), store.ErrInvalid)
	}
	if keep < 0 || keep > store.MaxKeep {
		return fmt.Errorf("%s: keep %s is out of range (0 to 24 days): %w", op, words.Duration(keep), store.ErrInvalid)
	}
	return nil
}

// CheckPage returns store.ErrInvalid for a page length that is not allowed.
func CheckPage(op string, most int) error {
	if most < 1 || most > store.MostListed {
		return fmt.Errorf("%s: a page of %d is out of range (1 to %d): %w", op, most, store.MostListed, store.ErrInvalid)
	}
	return nil
}

// Lost returns the error for a hold that does not exist.
func Lost(op string) error {
	return fmt.Errorf("%s: there is no such hold: %w", op, store.ErrLost)
}

// Process returns id if it can be the ID of a Locker, as returned by store.ProcessOf,
// and "" otherwise.
func Process(id string) string {
	return store.ProcessOf(id + "AAAAAAAAAAAAAAAAAAAAAAAAAA") // in the form of a lease's ID
}

// Age returns the time since a grant, or 0 if unknown. The token is the time of the
// grant in microseconds, unless the token was raised above that time.
func Age(token, now uint64) time.Duration {
	if token == 0 || token > now {
		return 0
	}
	return time.Duration(now-token) * time.Microsecond
}
