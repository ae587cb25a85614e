package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"sync/atomic"

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

// takenKeys remembers some keys that were taken when they were asked for last. It
// may forget one, or take another for it: that costs a round trip, or a script.
type takenKeys [64]atomic.Uint64

var seed = maphash.MakeSeed()

func (t *takenKeys) slot(key string) (*atomic.Uint64, uint64) {
	h := maphash.String(seed, key) | 1
	return &t[h>>1%uint64(len(t))], h
}

func (t *takenKeys) has(key string) bool {
	slot, h := t.slot(key)
	return slot.Load() == h
}

func (t *takenKeys) note(key string, taken bool) {
	slot, h := t.slot(key)
	if taken {
		slot.Store(h)
	} else {
		slot.CompareAndSwap(h, 0)
	}
}

// releasePlain leaves a key that is kept to a random owner.
func (s *Store) releasePlain(ctx context.Context, c *core.Claim) error {
	cmd := s.newCommand(plainReleaseScript, c.Key, "release").Text(c.Owner)
	if c.Keep > 0 {
		cmd.Num(millis(c.Keep)).Text(noHolder())
	}
	return s.settle(ctx, "release", cmd)
}

// noHolder is the owner of a plain key that is kept without a holder.
func noHolder() string { return keptBy + rand.Text() }
