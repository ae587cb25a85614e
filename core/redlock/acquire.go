package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Acquire implements core.Store: the claim goes to all nodes at once, and is
// granted when a majority of all nodes has granted it and some of its time is
// left. Nodes that have not answered by then go on in the background.
//
// What nodes have granted to a claim that fails is given back: before Acquire
// returns if a majority answers, but refuses; in the background if none answers, ctx
// ends, or the majority came too late. The error then says that the outcome is unknown,
// and the caller releases, as after any such error. A split vote is settled here: the
// claim that has the first node asks again a few times, the others give back.
func (s *Store) Acquire(ctx context.Context, c core.Claim) (core.Grant, error) {
	if err := s.usable("acquire", &c); err != nil {
		return core.Grant{}, err
	}
	if ctx.Err() != nil {
		return core.Grant{}, fmt.Errorf("redlock: acquire: %w: %w", core.ErrUnavailable, context.Cause(ctx))
	}
	if err := s.ready(ctx); err != nil {
		return core.Grant{}, fmt.Errorf("redlock: acquire: %w", err)
	}
	c.Push = false // a node alone cannot admit it
	start := time.Now()
	b, v := s.elect(ctx, c, start)
	if v != won {
		return core.Grant{}, b.failure(ctx, v)
	}
	owner, votes := b.votesOf()
	g := core.Grant{Owner: owner, Valid: s.valid(c.TTL)}
	for _, v := range votes {
		if v.grant.Valid > 0 {
			g.Valid = min(g.Valid, s.valid(v.grant.Valid))
		}
	}
	b.expel(ctx)
	if s.fencing && c.Weight == core.All && c.Limit == core.All {
		var err error
		if g.Token, err = s.fence(ctx, c, owner, b); err != nil {
			b.recall(ctx)
			return core.Grant{}, err
		}
	}
	s.thin(ctx, &c, len(s.nodes)-s.quorum)
	if time.Since(start) >= g.Valid {
		b.recall(ctx)
		return core.Grant{}, &uncertain{op: "acquire", cause: errTimeout}
	}
	return g, nil
}

// thin waits until no more than a few nodes have a request of c on its way. There
// can be more than a minority after several rounds, or where c is sent by many at
// once: if another process releases c at once, those that come late make it anew, and
// at so many nodes nobody else could get the key.
func (s *Store) thin(ctx context.Context, c *core.Claim, few int) {
	back := s.ledger.crowded(c, few)
	if back == nil {
		return
	}
	timer := time.NewTimer(s.budget(c.TTL))
	defer timer.Stop()
	for ; back != nil; back = s.ledger.crowded(c, few) {
		select {
		case <-back:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// elect has the nodes vote. What a claim that is refused has got is given back. If
// that was something, the key is changing hands, perhaps to nobody: a release has
// not reached all nodes yet, or another claim is giving back as well. So it asks
// again, a few times, or more for half of a node's time, but not the nodes whose time was
// over: it would keep from others what it gets, for as long as it waits for them.
func (s *Store) elect(ctx context.Context, c core.Claim, start time.Time) (*ballot, verdict) {
	pause, overdue := splitPause, []vote(nil)
	for round := 1; ; round++ {
		b := s.newBallot(c)
		b.mu.Lock()
		copy(b.votes, overdue)
		b.mu.Unlock()
		b.ask(ctx, func(v vote) bool { return v.kind == silent })
		v := b.insist(ctx, b.await(ctx), start)
		if v != refused {
			if v != won {
				b.recall(ctx)
			}
			return b, v
		}
		some, took := b.giveBack(ctx), time.Since(start)
		enough := round >= elections && took > s.timeout/2 || took > 2*s.timeout
		if !some || enough || !sleep(ctx, pause+rand.N(2*pause)) {
			return b, v
		}
		overdue = b.overdue()
		pause = min(4*pause, 64*splitPause)
	}
}

// sleep is false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
