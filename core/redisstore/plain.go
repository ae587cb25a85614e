package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/lockkit/lockkit/core/store"
)

// fits returns an error for a claim that keys of other programs do not support.
func (s *Store) fits(op string, c *store.Claim) error {
	switch {
	case !s.foreign():
		return nil
	case c.Weight != store.All || c.Limit != store.All:
		return s.unsupported(op, "sharing")
	case c.Fair:
		return s.unsupported(op, "fairness")
	case s.redisson && c.MinToken > 0 && s.split(c.Key):
		return s.unsupported(op, "a fencing token for a name with braces that are no hash tag, in a Cluster,")
	case s.plain && c.Via != "":
		return s.unsupported(op, "joining another owner")
	case s.plain && c.MinToken > 0:
		return s.unsupported(op, "a fencing token")
	}
	return nil
}

// unsupported returns the error for a feature that keys of other programs do not
// support.
func (s *Store) unsupported(op, what string) error {
	keys := "plain keys"
	if s.redisson {
		keys = "Redisson's locks"
	}
	return fmt.Errorf("redisstore: %s: %s with %s: %w", op, what, keys, store.ErrUnsupported)
}

// releasePlain releases a plain key. With Keep, the key stays taken by a random owner.
func (s *Store) releasePlain(ctx context.Context, c *store.Claim) error {
	cmd := s.newCommand(s.script.release, c.Key, "release").Text(c.Owner)
	if c.Keep > 0 {
		cmd.Num(millis(c.Keep)).Text(noHolder())
	}
	return s.confirm(ctx, "release", cmd)
}

// noHolder returns the owner of a plain key that stays taken without a holder.
func noHolder() string { return keptBy + rand.Text() }
