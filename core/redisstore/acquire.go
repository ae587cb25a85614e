package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// Acquire implements core.Store in one round trip, and a second one if the
// server does not know the script.
func (s *Store) Acquire(ctx context.Context, c core.Claim) (core.Grant, error) {
	if err := s.usable("acquire", &c); err != nil {
		return core.Grant{}, err
	}
	if s.plain {
		return s.acquirePlain(ctx, &c)
	}
	if s.pushable(&c) {
		return s.acquirePushed(ctx, c)
	}
	return s.admit(ctx, &c, s.asking(&c, false))
}

// acquirePushed is Acquire for a claim that may have been granted by message.
func (s *Store) acquirePushed(ctx context.Context, c core.Claim) (core.Grant, error) {
	of := s.key(c.Key) + " " + c.Lease
	g, watching := s.hub.pushedTo(of)
	if g != nil && ctx.Err() == nil {
		g.Owner = c.Owner
		return *g, nil
	}
	if !watching {
		return s.admit(ctx, &c, s.asking(&c, false))
	}
	asked := time.Now()
	a, err := s.call(ctx, "acquire", s.asking(&c, true))
	if err != nil {
		return core.Grant{}, err
	}
	if a.word == busy && len(a.list) > 3 {
		until, _ := a.list[3].(int64)
		s.hub.placed(of, place{asked, strconv.FormatInt(until, 10)})
	}
	return granted(&c, a)
}

// anyToken is the highest least token that asks for nothing: all tokens are above 0.
const anyToken = 1

// whole tells that c is exclusive and asks for no token, as most claims do.
func whole(c *core.Claim) bool { return c.Weight >= core.All && c.MinToken <= anyToken }

// asking is a call of the acquire script, see free.lua for arguments. The values that most claims have are no arguments:
// an argument takes the server as long as ten lines of Lua.
func (s *Store) asking(c *core.Claim, listens bool) *pipeline.Call {
	cmd := s.newCommand(acquireScript, c.Key, s.acquires.acquire(acquireFlags{fair: c.Fair, wait: c.Wait, byMessage: listens})).Optional().
		Text(c.Lease).Text(c.Owner).Num(millis(c.TTL))
	if !whole(c) || c.Via != "" || c.Record != nil {
		cmd.Num(c.Weight).Num(c.Limit).Text(c.Via).Num(int64(c.MinToken))
	}
	if r := c.Record; r != nil {
		cmd.Text(string(r.Value)).Word(millis(r.Retain))
	}
	return cmd
}

// admit sends a command that is answered like the acquire script.
func (s *Store) admit(ctx context.Context, c *core.Claim, cmd *pipeline.Call) (core.Grant, error) {
	if s.acks {
		kept := *c // so that c need not outlive the call where there are no replicas
		return s.admitReplicated(ctx, &kept, cmd)
	}
	a, err := s.call(ctx, "acquire", cmd)
	if err != nil {
		return core.Grant{}, err
	}
	return granted(c, a)
}

// granted reads the answer of the acquire script, see free.lua.
func granted(c *core.Claim, a answer) (core.Grant, error) {
	switch a.word {
	case okay:
		g := core.Grant{Owner: c.Owner, Token: uint64(a.n)}
		if len(a.list) > 2 {
			g.Owner, _ = a.list[2].(string)
		}
		if len(a.list) > 3 {
			g.Record = recorded(c, a.list[3:])
		}
		if g.Owner != "" && a.n >= 0 && (g.Record != nil) == (c.Record != nil) {
			return g, nil
		}
	case finished:
		if g := (core.Grant{Owner: c.Owner, Record: recorded(c, a.list[1:])}); g.Record != nil {
			g.Record.Done = true
			return g, nil
		}
	case busy:
		e := &core.BusyError{Key: c.Key, RetryAfter: time.Duration(a.n) * time.Millisecond}
		if len(a.list) > 2 {
			waiting, _ := a.list[2].(int64)
			e.Waiting = int(waiting)
		}
		return core.Grant{}, e
	case lost:
		return core.Grant{}, fmt.Errorf("redisstore: acquire: released before: %w", core.ErrLost)
	case heavy:
		return core.Grant{}, fmt.Errorf("redisstore: acquire: heavier than the hold that it joins: %w", core.ErrInvalid)
	}
	return core.Grant{}, errors.New("redisstore: acquire: outcome unknown: answer cannot be read")
}

// Release implements core.Store in one round trip, and a second one if the
// server does not know the script.
func (s *Store) Release(ctx context.Context, c core.Claim) error {
	if err := s.usable("release", &c); err != nil {
		return err
	}
	if s.plain {
		return s.releasePlain(ctx, &c)
	}
	flags := releaseFlags{oneToken: c.Used == 1, undo: c.Undo && c.Record == nil}
	cmd := s.newCommand(releaseScript, c.Key, s.releases.release(flags)).
		Text(c.Lease).Num(millis(c.TTL))
	if c.Keep > 0 || !inString(&c) {
		cmd.Num(millis(c.Keep)) // also 0: without it only.lua asks by GET, which a hash refuses
	}
	if c.Record != nil {
		save(cmd, c.Record)
		if s.acks {
			return s.settleReplicated(ctx, "release", cmd)
		}
	}
	return s.settle(ctx, "release", cmd)
}

// inString tells that the key of c, which is released, is probably a string: such a claim
// makes one of a free key, and most others a hash. A wrong guess costs a command, and
// changes no answer.
func inString(c *core.Claim) bool { return whole(c) && c.Record == nil && !c.Undo }

// settle sends a command that is answered like release.lua.
func (s *Store) settle(ctx context.Context, op string, cmd *pipeline.Call) error {
	a, err := s.call(ctx, op, cmd)
	if err != nil {
		return err
	}
	return confirmed(op, a)
}

// confirmed reads the answer of extend.lua and release.lua.
func confirmed(op string, a answer) error {
	switch a.word {
	case okay:
		return nil
	case lost:
		return fmt.Errorf("redisstore: %s: %w", op, core.ErrLost)
	}
	return fmt.Errorf("redisstore: %s: outcome unknown: answer cannot be read", op)
}
