// Package inspection is what the stores of this repository have in common as a
// core.Inspector.
package inspection

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// CheckRevoke refuses with core.ErrInvalid what cannot be revoked.
func CheckRevoke(op, hold string, keep time.Duration) error {
	if hold == "" || len(hold) > 64 {
		return fmt.Errorf("%s: the ID of a hold is needed: %w", op, core.ErrInvalid)
	}
	if keep < 0 || keep > core.MaxKeep {
		return fmt.Errorf("%s: to keep the key for %v, 0 to %v is allowed: %w", op, keep, core.MaxKeep, core.ErrInvalid)
	}
	return nil
}

// CheckPage refuses with core.ErrInvalid the length of a page.
func CheckPage(op string, most int) error {
	if most < 1 || most > core.MostListed {
		return fmt.Errorf("%s: a page of %d, 1 to %d is allowed: %w", op, most, core.MostListed, core.ErrInvalid)
	}
	return nil
}

// Lost says that there is no such hold.
func Lost(op string) error {
	return fmt.Errorf("%s: there is no such hold: %w", op, core.ErrLost)
}

// Process is id if it can be the ID of a Locker, as core.ProcessOf returns them, else "".
func Process(id string) string {
	return core.ProcessOf(id + "AAAAAAAAAAAAAAAAAAAAAAAAAA") // a lease of it
}

// Age is how long ago a grant was, whose token is the time in microseconds at which it
// came unless something made it later; 0 if that is not known.
func Age(token, now uint64) time.Duration {
	if token == 0 || token > now {
		return 0
	}
	return time.Duration(now-token) * time.Microsecond
}
