package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/lockkit/lockkit/core"
)

// plainly tells that a plain key can carry the claim.
func plainly(op string, c *core.Claim) error {
	var what string
	switch {
	case c.Via != "":
		what = "joining another owner"
	case c.Weight != core.All || c.Limit != core.All:
		what = "sharing"
	case c.Fair:
		what = "fairness"
	case c.MinToken > 0:
		what = "a fencing token"
	default:
		return nil
	}
	return fmt.Errorf("redisstore: %s: %s with plain keys: %w", op, what, core.ErrUnsupported)
}

func (s *Store) acquirePlain(ctx context.Context, c core.Claim) (core.Grant, error) {
	if err := plainly("acquire", &c); err != nil {
		return core.Grant{}, err
	}
	cmd := newCommand(nil, plainAcquireScript, s.key(c.Key)).text(c.Owner).num(millis(c.TTL))
	return s.admit(ctx, &c, cmd.ready(ctx))
}

// releasePlain leaves a key that is kept to an owner that nobody knows.
func (s *Store) releasePlain(ctx context.Context, c core.Claim) error {
	cmd := newCommand(nil, plainReleaseScript, s.key(c.Key)).text(c.Owner).num(millis(c.Keep)).text("kept:" + rand.Text())
	return s.settle(ctx, "release", cmd.ready(ctx))
}
