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

// acquirePlain asks with a bare SET NX, which costs the server a third of what a
// script does, unless it expects to be refused: only the script tells an owner's
// own key, and for how long it is taken.
func (s *Store) acquirePlain(ctx context.Context, c *core.Claim) (core.Grant, error) {
	if err := plainly("acquire", c); err != nil {
		return core.Grant{}, err
	}
	if !s.acks && !s.taken.has(c.Key) {
		cmd := s.newSet(c.Key, c.Owner, millis(c.TTL)).ready(ctx)
		switch v, err := s.exchange(ctx, cmd); {
		case err != nil:
			return core.Grant{}, s.failure(ctx, "acquire", cmd.flight, err)
		case v == "OK":
			return core.Grant{Owner: c.Owner}, nil
		case v != nil:
			return core.Grant{}, errors.New("redisstore: acquire: outcome unknown: answer cannot be read")
		}
	}
	cmd := s.newCommand(plainAcquireScript, c.Key, "acquire").text(c.Owner).num(millis(c.TTL))
	g, err := s.admit(ctx, c, cmd.ready(ctx))
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

// releasePlain leaves a key that is kept to an owner that nobody knows.
func (s *Store) releasePlain(ctx context.Context, c *core.Claim) error {
	cmd := s.newCommand(plainReleaseScript, c.Key, "release").text(c.Owner)
	if c.Keep > 0 {
		cmd.num(millis(c.Keep)).text("kept:" + rand.Text())
	}
	return s.settle(ctx, "release", cmd.ready(ctx))
}
