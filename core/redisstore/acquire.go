package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Acquire implements core.Store in one round trip, and a second one if the
// server does not know the script. It fails with core.ErrUnsupported for a claim
// with a record.
func (s *Store) Acquire(ctx context.Context, c core.Claim) (core.Grant, error) {
	if err := s.usable("acquire", &c); err != nil {
		return core.Grant{}, err
	}
	if s.plain {
		return s.acquirePlain(ctx, c)
	}
	flags := ""
	if c.Fair {
		flags += "f"
	}
	if c.Wait {
		flags += "w"
	}
	if s.cluster != nil {
		flags += "c"
	}
	return s.admit(ctx, &c, acquireScript, c.Lease, c.Owner, c.Via, c.Weight, c.Limit,
		millis(c.TTL), flags, c.MinToken, s.wake, s.id)
}

// admit runs a script that answers like acquire.lua.
func (s *Store) admit(ctx context.Context, c *core.Claim, sc *script, args ...any) (core.Grant, error) {
	if s.acks {
		return s.admitReplicated(ctx, c, sc, args...)
	}
	a, err := s.call(ctx, "acquire", sc, s.key(c.Key), args...)
	if err != nil {
		return core.Grant{}, err
	}
	return granted(c, a)
}

// granted reads the answer of acquire.lua.
func granted(c *core.Claim, a []any) (core.Grant, error) {
	switch a[0] {
	case "ok":
		if len(a) == 3 {
			token, isInt := a[1].(int64)
			owner, isText := a[2].(string)
			if isInt && isText {
				if owner == "" {
					owner = c.Owner
				}
				return core.Grant{Owner: owner, Token: uint64(token)}, nil
			}
		}
	case "busy":
		if len(a) == 2 {
			if ms, ok := a[1].(int64); ok {
				return core.Grant{}, &core.BusyError{Key: c.Key, RetryAfter: time.Duration(ms) * time.Millisecond}
			}
		}
	case "lost":
		return core.Grant{}, fmt.Errorf("redisstore: acquire: released before: %w", core.ErrLost)
	case "heavy":
		return core.Grant{}, fmt.Errorf("redisstore: acquire: heavier than the hold that it joins: %w", core.ErrInvalid)
	}
	return core.Grant{}, fmt.Errorf("redisstore: acquire: outcome unknown: answer cannot be read")
}

// Release implements core.Store in one round trip, and a second one if the
// server does not know the script.
func (s *Store) Release(ctx context.Context, c core.Claim) error {
	if err := s.usable("release", &c); err != nil {
		return err
	}
	if s.plain {
		return s.releasePlain(ctx, c)
	}
	flags := ""
	if s.cluster != nil {
		flags = "c"
	}
	return s.settle(ctx, "release", &c, releaseScript, c.Lease, millis(c.TTL), millis(c.Keep), flags, s.wake)
}

// settle runs a script that answers like release.lua.
func (s *Store) settle(ctx context.Context, op string, c *core.Claim, sc *script, args ...any) error {
	a, err := s.call(ctx, op, sc, s.key(c.Key), args...)
	if err != nil {
		return err
	}
	return confirmed(op, a)
}

// confirmed reads the answer of extend.lua and release.lua.
func confirmed(op string, a []any) error {
	switch a[0] {
	case "ok":
		return nil
	case "lost":
		return fmt.Errorf("redisstore: %s: %w", op, core.ErrLost)
	}
	return fmt.Errorf("redisstore: %s: outcome unknown: answer cannot be read", op)
}
