package redisstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// Acquire implements store.Store. It takes one round trip, or none if a message has
// already granted the key. If Acquire begins with a SET and the key is taken, a script
// takes a second round trip. Each of these cases takes one more: the server does not
// know the script, the slot of the key has moved, and a wake-up has to be published
// after the script (WithoutScriptedWakeUps).
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := s.usable("acquire", &c); err != nil {
		return store.Grant{}, err
	}
	if err := s.fits("acquire", &c); err != nil {
		return store.Grant{}, err
	}
	if s.acks {
		if _, doomed := s.doomed.Load(c.Lease); doomed {
			return store.Grant{}, errors.New("redisstore: acquire: outcome unknown: an earlier grant of this lease is being released")
		}
		bounded, cancel := pipeline.Bounded(ctx)
		defer cancel()
		ctx = bounded
	}
	direct := s.direct(&c)
	switch {
	case s.pushable(&c):
		return s.acquireByMessage(ctx, &c)
	case direct && !s.taken.has(c.Key):
		if g, ok, err := s.acquireBySet(ctx, &c); ok || err != nil {
			return g, err
		}
	}
	g, err := s.acquireByScript(ctx, &c)
	if direct {
		s.taken.note(c.Key, errors.Is(err, store.ErrBusy))
	}
	return g, err
}

// direct reports whether c can be granted by a SET without a script if the key is free.
func (s *Store) direct(c *store.Claim) bool {
	return s.plain || !s.redisson && !s.proxied && whole(c) && c.Via == "" && c.Record == nil && !c.Wait
}

// acquireBySet acquires a free key by a bare SET NX, which costs the server a third of
// a script. Except with WithPlainKeys, the token is the server's time, from a TIME
// after the SET. The TIME runs while the key is held. So the token is later than all
// earlier holds of the key. acquireBySet returns false without an error if the script
// has to be called. That is so if the key is taken, if the server has refused the SET
// for another reason, or if the call fails with pipeline.ErrElsewhere, for example
// because the key's slot has moved.
func (s *Store) acquireBySet(ctx context.Context, c *store.Claim) (g store.Grant, ok bool, err error) {
	ms := millis(c.TTL)
	var room [96]byte
	value := append(room[:0], c.Owner...)
	if !s.plain {
		value = append(strconv.AppendInt(room[:0], ms, 10), ' ')
		value = append(append(append(value, c.Owner...), ' '), c.Lease...)
	}
	var name [64]byte
	cmd := s.pipeline.SetNX(s.named(name[:0], c.Key), value, ms).Optional()
	if !s.plain {
		cmd.Timed()
	}
	r, err := s.pipeline.Do(ctx, s.replicated(cmd))
	switch {
	case err == nil && r.Reply == nil: // the key exists
		return g, false, nil
	case errors.Is(err, pipeline.ErrElsewhere), pipeline.ClassOf(err).Unchanged:
		return g, false, nil
	case err != nil:
		return s.afterFailedSet(ctx, c, r, s.failure(ctx, "acquire", err))
	}
	g.Owner = c.Owner
	if us, timed := r.Reply.(int64); timed { // see Call.Timed
		g.Token = uint64(us)
	} else if !s.plain || r.Reply != "OK" {
		return store.Grant{}, false, errors.New("redisstore: acquire: outcome unknown: answer cannot be read")
	}
	if err := s.acknowledged(ctx, c, g.Token, r); err != nil {
		return store.Grant{}, false, err
	}
	return g, true, nil
}

// afterFailedSet continues after a SET that failed with err. r is the outcome of its
// WAIT. If only the TIME was refused, the script can still return a token. The next
// acquire of this key calls the script first.
func (s *Store) afterFailedSet(ctx context.Context, c *store.Claim, r pipeline.Replicated, err error) (store.Grant, bool, error) {
	s.taken.note(c.Key, true)
	var noTime *pipeline.NoTimeError
	if errors.As(err, &noTime) && noTime.Refused() {
		if few := s.acknowledged(ctx, c, 0, r); few != nil {
			return store.Grant{}, false, few
		}
		if g, failed := s.acquireByScript(ctx, c); failed == nil || errors.Is(failed, store.ErrBusy) {
			return g, failed == nil, failed
		}
	}
	return store.Grant{}, false, err
}

// acquireByMessage returns a grant that has arrived by message, or calls the script.
func (s *Store) acquireByMessage(ctx context.Context, c *store.Claim) (store.Grant, error) {
	of := s.key(c.Key) + " " + c.Lease
	g, watching := s.pushedTo(of)
	if g != nil && ctx.Err() == nil {
		g.Owner = c.Owner
		return *g, nil
	}
	if !watching {
		return s.acquireByScript(ctx, c)
	}
	asked := time.Now()
	a, _, err := s.call(ctx, "acquire", s.asking(c, true))
	if err != nil {
		return store.Grant{}, err
	}
	if a.word == busy && len(a.list) > 3 {
		until, _ := a.list[3].(int64)
		got := place{asked, strconv.FormatInt(until, 10)}
		s.hub.Each(of, func(w *watched) { w.place = got })
	}
	return granted(c, a)
}

// anyToken is the highest MinToken that all tokens satisfy. Tokens are above 0.
const anyToken = 1

// whole reports whether c is exclusive and accepts any token, as most claims do.
func whole(c *store.Claim) bool { return c.Weight >= store.All && c.MinToken <= anyToken }

// asking returns a call of the acquire script. acquire.lua describes the arguments.
// Arguments with default values are left out, because an argument costs the server as
// much as ten lines of Lua.
func (s *Store) asking(c *store.Claim, listens bool) *pipeline.Call {
	switch {
	case s.redisson:
		return s.askingRedisson(c)
	case s.plain:
		return s.newCommand(s.script.acquire, c.Key, "acquire").Optional().Text(c.Owner).Num(millis(c.TTL))
	}
	cmd := s.newCommand(s.script.acquire, c.Key, s.acquires.acquire(acquireFlags{fair: c.Fair, wait: c.Wait, byMessage: listens})).Optional().
		Text(c.Lease).Text(c.Owner).Num(millis(c.TTL))
	if !whole(c) || c.Via != "" || c.Record != nil {
		cmd.Num(c.Weight).Num(c.Limit).Text(c.Via).Num(int64(c.MinToken))
	}
	if r := c.Record; r != nil {
		cmd.Text(string(r.Value)).Word(millis(r.Retain))
	}
	return cmd
}

func (s *Store) acquireByScript(ctx context.Context, c *store.Claim) (store.Grant, error) {
	a, r, err := s.call(ctx, "acquire", s.replicated(s.asking(c, false)))
	if err != nil {
		return store.Grant{}, err
	}
	g, err := granted(c, a)
	if err == nil && (g.Record == nil || !g.Record.Done) { // otherwise nothing was claimed
		err = s.acknowledged(ctx, c, g.Token, r)
	}
	if err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

// granted reads the answer of the acquire script, which acquire.lua describes.
func granted(c *store.Claim, a answer) (store.Grant, error) {
	switch a.word {
	case okay:
		g := store.Grant{Owner: c.Owner, Token: uint64(a.n)}
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
		if r := replayed(a.list[1:]); r != nil && c.Record != nil {
			return store.Grant{Owner: c.Owner, Record: r}, nil
		}
	case busy:
		e := &store.BusyError{Key: c.Key, RetryAfter: time.Duration(a.n) * time.Millisecond}
		if len(a.list) > 2 {
			waiting, _ := a.list[2].(int64)
			e.Waiting = int(waiting)
		}
		return store.Grant{}, e
	case lost:
		return store.Grant{}, fmt.Errorf("redisstore: acquire: released before: %w", store.ErrLost)
	case heavy:
		return store.Grant{}, fmt.Errorf("redisstore: acquire: heavier than the hold that it joins: %w", store.ErrInvalid)
	}
	return store.Grant{}, errors.New("redisstore: acquire: outcome unknown: answer cannot be read")
}

// takenKeys remembers some keys that were taken at the last acquire. It can forget a
// key, which costs one more round trip. Two keys with one hash count as one key, which
// can cost a script instead of a SET.
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
