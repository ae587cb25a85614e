package redisstore

import (
	"context"
	"fmt"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// Release implements store.Store. It takes one round trip. Each of these cases takes one
// more: the server does not know the script, the slot of the key has moved, and a
// wake-up has to be published after the script (WithoutScriptedWakeUps).
//
// If the server refuses the release, the hold is as before, and the error matches
// store.ErrUnavailable. If there is no such hold, the error matches store.ErrLost. After
// any other error the outcome is unknown. See pipeline.Class for error replies.
func (s *Store) Release(ctx context.Context, c store.Claim) error {
	if err := s.usable("release", &c); err != nil {
		return err
	}
	switch {
	case s.plain:
		return s.releasePlain(ctx, &c)
	case s.redisson:
		return s.confirm(ctx, "release", s.releasingRedisson("release", c.Key, c.Lease, c.Keep))
	}
	flags := releaseFlags{undo: c.Undo && c.Record == nil}
	cmd := s.newCommand(s.script.release, c.Key, s.releases.release(flags)).
		Text(c.Lease).Num(millis(c.TTL))
	if c.Last > 0 {
		cmd.Num(int64(c.Last))
	} else {
		cmd.Word(unknownToken)
	}
	if c.Keep > 0 || c.Undo || c.Record != nil {
		cmd.Num(millis(c.Keep))
	}
	if c.Record != nil {
		save(cmd, &c)
		if s.acks {
			return s.confirmReplicated(ctx, "release", cmd)
		}
	}
	return s.confirm(ctx, "release", cmd)
}

// unknownToken is the argument of release.lua if the last used token is unknown.
var unknownToken any = ""

// confirm sends cmd and reads its answer, which has the form of release.lua's answer.
func (s *Store) confirm(ctx context.Context, op string, cmd *pipeline.Call) error {
	a, _, err := s.call(ctx, op, cmd)
	if err != nil {
		return err
	}
	return confirmed(op, a)
}

// confirmed reads the answers of extend.lua and release.lua.
func confirmed(op string, a answer) error {
	switch a.word {
	case okay:
		return nil
	case lost:
		return fmt.Errorf("redisstore: %s: %w", op, store.ErrLost)
	}
	return fmt.Errorf("redisstore: %s: outcome unknown: answer cannot be read", op)
}
