package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Acquire implements core.Store: the claim goes to all nodes at once, and is
// granted when a majority of all nodes has granted it and some of its time is
// left. Nodes that have not answered by then go on in the background.
//
// If a majority answers, but refuses, what was granted is given back before
// Acquire returns; if none answers, the error says that the outcome is unknown, and the
// caller releases, as after any such error. A split vote is settled here: the
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
	start := time.Now()
	b, v := s.elect(ctx, c, start)
	if v != won {
		return core.Grant{}, b.failure(ctx, v)
	}
	owner, _ := b.votesOf()
	g := core.Grant{Owner: owner, Valid: s.valid(c.TTL)}
	b.expel(ctx)
	if s.fencing && c.Weight == core.All && c.Limit == core.All {
		var err error
		if g.Token, err = s.fence(ctx, c, owner, b); err != nil {
			return core.Grant{}, err
		}
	}
	if time.Since(start) >= g.Valid {
		return core.Grant{}, &uncertain{op: "acquire", cause: errTimeout}
	}
	return g, nil
}

// elect has the nodes vote. What a claim that is refused has got is given back. If
// that was something, the key is changing hands, perhaps to nobody: a release has
// not reached all nodes yet, or another claim is giving back as well. So it asks
// again, twice at the most.
func (s *Store) elect(ctx context.Context, c core.Claim, start time.Time) (*ballot, verdict) {
	pause := splitPause
	for {
		b := s.newBallot(c)
		b.ask(ctx, func(vote) bool { return true })
		v := b.insist(ctx, b.await(ctx), start)
		if v != refused {
			return b, v
		}
		some := b.giveBack(ctx)
		if !some || pause > 4*splitPause || time.Since(start) > 2*s.timeout || !sleep(ctx, pause+rand.N(2*pause)) {
			return b, v
		}
		pause *= 4
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

// Rounds of a split vote: a few, with pauses from splitPause on that double.
const (
	splitRounds = 7
	splitPause  = time.Millisecond
	firstGrace  = 5 * time.Millisecond // for the first nodes to say whose they are
)

// insist asks again in a split vote, if this claim is the favourite.
func (b *ballot) insist(ctx context.Context, v verdict, start time.Time) verdict {
	pause := splitPause
	if v == refused {
		b.settleFirst(ctx, time.Since(start))
	}
	for range splitRounds {
		if v != refused || !b.favourite() || time.Since(start) > 2*b.store.timeout {
			return v
		}
		if !sleep(ctx, pause/2+rand.N(pause)) {
			return v
		}
		pause *= 2
		b.ask(ctx, func(v vote) bool { return v.kind == busy })
		v = b.await(ctx)
	}
	return v
}

// giveBack releases what single nodes have granted to a claim that was refused,
// and waits for that as long as one node may take. A node that has not answered
// is told later, unless the claim comes again: one that waits does, or is
// released. It tells whether there was anything.
func (b *ballot) giveBack(ctx context.Context) (some bool) {
	s := b.store
	var back sync.WaitGroup
	b.mu.Lock()
	b.final = true
	for i, v := range b.votes {
		switch {
		case b.asked[i] || v.kind == unknown:
			if !b.claim.Wait {
				s.janitor.later(b.claim, i)
			}
		case b.holds(v):
			s.ledger.leave(&b.claim, i)
			back.Add(1)
			some = true
			s.sendBack(ctx, s.nodes[i], b.claim, func(error) { back.Done() })
		}
	}
	b.mu.Unlock()
	// Each call settles within its budget, or its node does not keep to its ctx.
	settled := make(chan struct{})
	s.run(func() {
		back.Wait()
		close(settled)
	})
	timer := time.NewTimer(s.budget(b.claim.TTL))
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
	case <-ctx.Done():
	}
	return some
}

// expel gives back what nodes have granted to another owner than the majority: a
// claim that joins finds its owner at some nodes only.
func (b *ballot) expel(ctx context.Context) {
	s := b.store
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range b.votes {
		if !b.asked[i] && b.holds(v) && v.grant.Owner != b.owner {
			s.ledger.leave(&b.claim, i)
			s.sendBack(ctx, s.nodes[i], b.claim, func(error) {})
		}
	}
}

// sendBack releases a hold that was granted, of which the ledger knows that it
// leaves. It plants no tombstone: the same claim may come again.
func (s *Store) sendBack(ctx context.Context, n *node, c core.Claim, done func(error)) {
	brief := c
	brief.TTL, brief.Wait, brief.Keep = 0, false, 0
	s.call(ctx, n, s.budget(c.TTL), func(ctx context.Context) error {
		return n.store.Release(ctx, brief)
	}, func(err error) {
		k := kindOf(err)
		// Also if it was certainly not told: the janitor will, and the claim
		// must not come again meanwhile.
		unanswered := k != granted && k != lost
		s.ledger.left(&c, n.index, unanswered, false)
		if unanswered {
			s.janitor.now(c, n.index, true)
		}
		done(err)
	})
}

// grid is the distance of the tokens that are granted, in the nodes' unit of a
// microsecond. A token on the grid was written back, one between is a node's own.
const grid = 1 << 14

// fence returns the token of a claim that was granted: at least the highest that
// a majority has given, and known to a majority before it is returned. Any
// later majority has a node among those, whose token is then higher.
//
// A node that was late may still give itself a token of its own, for the same
// hold. Rounding up keeps that below, so that other holds of the owner get the
// same token.
func (s *Store) fence(ctx context.Context, c core.Claim, owner string, b *ballot) (uint64, error) {
	token, known := b.token(ctx)
	if known {
		return token, nil
	}
	if token%grid != 0 {
		token = (token/grid + 1) * grid
	}
	c.MinToken, c.Wait = max(c.MinToken, token), false
	b = s.newBallot(c)
	b.ask(ctx, func(vote) bool { return true })
	if v := b.await(ctx); v != won {
		return 0, &uncertain{op: "acquire", cause: b.failure(ctx, v)}
	}
	got, votes := b.votesOf()
	b.expel(ctx)
	for _, v := range votes {
		if v.grant.Token < c.MinToken || got != owner {
			return 0, &uncertain{op: "acquire", cause: errTimeout}
		}
	}
	return c.MinToken, nil
}

// token returns the highest token of the votes, or one on the grid that a
// majority has, which is known then. Where single nodes have one on the grid and
// others a higher one of their own, it waits a moment for more votes: the owner
// holds already, and a node has heard of that too late.
func (b *ballot) token(ctx context.Context) (token uint64, known bool) {
	timer := time.NewTimer(firstGrace)
	defer timer.Stop()
	for {
		_, votes := b.votesOf()
		count, most := make(map[uint64]int), uint64(0)
		for _, v := range votes {
			if t := v.grant.Token; t%grid == 0 {
				count[t]++
			}
			most = max(most, v.grant.Token)
		}
		for t, n := range count {
			if n >= b.store.quorum {
				return t, true
			}
		}
		if len(count) == 0 || len(votes) == len(b.votes) || most%grid == 0 {
			return most, false
		}
		select {
		case <-b.news:
		case <-timer.C:
			return most, false
		case <-ctx.Done():
			return most, false
		}
	}
}
