package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
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

// acquirePlain asks with a bare SET NX, which costs the server a third of a script. If
// it expects a refusal it asks by the script: only that tells an owner's own key, and
// for how long a key is taken.
func (s *Store) acquirePlain(ctx context.Context, c *core.Claim) (core.Grant, error) {
	if err := plainly("acquire", c); err != nil {
		return core.Grant{}, err
	}
	if !s.acks && !s.taken.has(c.Key) {
		switch v, err := s.exchange(ctx, "acquire", s.newSet(c.Key, c.Owner, millis(c.TTL))); {
		case err != nil:
			return core.Grant{}, err
		case v == "OK":
			return core.Grant{Owner: c.Owner}, nil
		case v != nil:
			return core.Grant{}, errors.New("redisstore: acquire: outcome unknown: answer cannot be read")
		}
	}
	cmd := s.newCommand(plainAcquireScript, c.Key, "acquire").Optional().Text(c.Owner).Num(millis(c.TTL))
	g, err := s.admit(ctx, c, cmd)
	s.taken.note(c.Key, errors.Is(err, core.ErrBusy))
	return g, err
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
