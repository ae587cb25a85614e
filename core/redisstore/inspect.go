package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/inspection"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// Look implements store.Inspector. It takes one round trip, and a second one if the
// server does not know the script. It does not transfer the value of a record. Look
// fails if the value of the key is not that of a lock.
//
// Holds of plain keys, and holds of Redisson itself, have neither an age nor a process.
// An ID is a digest. A reader who can guess another client's owner can check the guess
// with the ID.
func (s *Store) Look(ctx context.Context, key string) (store.State, error) {
	const op = "look"
	if err := claims.CheckKey("redisstore: look", key, s.foreign()); err != nil {
		return store.State{}, err
	}
	v, err := s.view(ctx, op, key)
	return v.state, err
}

// Revoke implements store.Inspector in two steps: it finds the hold, and releases it by
// its lease. The ID of a hold of the kit is never reused. The ID of a hold of Redisson
// identifies its thread, and the ID of another client's plain key identifies the owner.
// keep also works with WithPlainKeys and WithRedisson.
func (s *Store) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	const op, name = "revoke", "redisstore: revoke"
	if err := claims.CheckKey(name, key, s.foreign()); err != nil {
		return err
	}
	if err := inspection.CheckRevoke(name, hold, keep); err != nil {
		return err
	}
	ctx, cancel := pipeline.Bounded(ctx)
	defer cancel()
	v, err := s.view(ctx, op, key)
	if err != nil {
		return err
	}
	lease := v.leases[hold]
	if lease == "" {
		return inspection.Lost(name)
	}
	if s.redisson {
		return s.withRight(ctx, s.confirm(ctx, op, s.releasingRedisson("revoke", key, lease, keep)))
	}
	if s.plain {
		cmd := s.newCommand(s.script.release, key, "release").Text(lease)
		if keep > 0 {
			cmd.Num(millis(keep)).Text(noHolder()).Text("1")
		}
		return s.withRight(ctx, s.confirm(ctx, op, cmd))
	}
	// The holder's token can be the reply of a TIME that runs after this call, within
	// the limit of a call.
	last := v.us + uint64(pipeline.Limit.Microseconds()) + store.TokenStep
	cmd := s.newCommand(s.script.release, key, s.releases.release(releaseFlags{left: true})).
		Text(lease).Num(0).Num(int64(last)).Num(millis(keep))
	return s.withRight(ctx, s.confirm(ctx, op, cmd))
}

func (s *Store) view(ctx context.Context, op, key string) (view, error) {
	a, _, err := s.call(ctx, op, s.newCommand(s.script.show, key, "show").Num(maxOwner))
	if err != nil && !errors.Is(err, store.ErrUnavailable) {
		err = fmt.Errorf("%w (%w)", store.ErrUnavailable, err) // the call could change nothing
	}
	if err != nil {
		return view{}, s.withRight(ctx, err)
	}
	v, ok := s.readView(key, a)
	if !ok {
		return view{}, fmt.Errorf("redisstore: %s: value of the key cannot be read: %w", op, store.ErrUnavailable)
	}
	return v, nil
}

func (s *Store) readView(key string, a answer) (view, bool) {
	texts := make([]string, 0, len(a.list))
	for i, v := range a.list {
		switch v := v.(type) {
		case string:
			texts = append(texts, v)
		case int64:
			if i > 0 {
				texts = append(texts, fmt.Sprint(v))
			}
		default:
			return view{}, false
		}
	}
	switch {
	case a.word != okay:
		return view{}, false
	case s.plain:
		return parsePlain(key, texts)
	case s.redisson:
		return parseRedisson(key, texts)
	}
	return parseView(key, texts)
}

// keyOf returns the lock's key for the name of a key in Redis.
func (s *Store) keyOf(name string) (key string, ok bool) {
	if key, ok = strings.CutPrefix(name, s.prefix); !ok {
		return "", false
	}
	if !s.foreign() {
		if !strings.HasPrefix(key, "{") || !strings.HasSuffix(key, "}") {
			return "", false
		}
		key = key[1 : len(key)-1]
	}
	return key, claims.CheckKey("", key, s.foreign()) == nil
}
