// Package inspection is what the stores of this repository have in common as a
// store.Inspector.
package inspection

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// CheckRevoke refuses with store.ErrInvalid what cannot be revoked.
func CheckRevoke(op, hold string, keep time.Duration) error {
	if hold == "" || len(hold) > 64 {
		return fmt.Errorf("%s: the ID of a hold is needed: %w", op, store.ErrInvalid)
	}
	if keep < 0 || keep > store.MaxKeep {
		return fmt.Errorf("%s: to keep the key for %v, 0 to %v is allowed: %w", op, keep, store.MaxKeep, store.ErrInvalid)
	}
	return nil
}

// CheckPage refuses with store.ErrInvalid the length of a page.
func CheckPage(op string, most int) error {
	if most < 1 || most > store.MostListed {
		return fmt.Errorf("%s: a page of %d, 1 to %d is allowed: %w", op, most, store.MostListed, store.ErrInvalid)
	}
	return nil
}

// Lost says that there is no such hold.
func Lost(op string) error {
	return fmt.Errorf("%s: there is no such hold: %w", op, store.ErrLost)
}

// Process is id if it can be the ID of a Locker, as store.ProcessOf returns them, else
// "".
func Process(id string) string {
	return store.ProcessOf(id + "AAAAAAAAAAAAAAAAAAAAAAAAAA") // a lease of it
}

// Age is how long ago a grant was, whose token is the time in microseconds at which it
// came unless something made it later; 0 if that is not known.
func Age(token, now uint64) time.Duration {
	if token == 0 || token > now {
		return 0
	}
	return time.Duration(now-token) * time.Microsecond
}
