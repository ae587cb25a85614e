package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/lockkit/lockkit/core/store"
)

// plainly tells that a plain key can carry the claim.
func plainly(op string, c *store.Claim) error {
	var what string
	switch {
	case c.Via != "":
		what = "joining another owner"
	case c.Weight != store.All || c.Limit != store.All:
		what = "sharing"
	case c.Fair:
		what = "fairness"
	case c.MinToken > 0:
		what = "a fencing token"
	default:
		return nil
	}
	return fmt.Errorf("redisstore: %s: %s with plain keys: %w", op, what, store.ErrUnsupported)
}

// releasePlain leaves a key that is kept to a random owner.
func (s *Store) releasePlain(ctx context.Context, c *store.Claim) error {
	cmd := s.newCommand(plainReleaseScript, c.Key, "release").Text(c.Owner)
	if c.Keep > 0 {
		cmd.Num(millis(c.Keep)).Text(noHolder())
	}
	return s.settle(ctx, "release", cmd)
}

// noHolder is the owner of a plain key that is kept without a holder.
func noHolder() string { return keptBy + rand.Text() }
