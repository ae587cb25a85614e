package redisstore

import (
	"context"
	"crypto/rand"

	"github.com/lockkit/lockkit/core/store"
)

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
