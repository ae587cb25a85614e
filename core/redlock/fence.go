package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
)

// grid is the distance of the tokens that are granted, in the nodes' unit of a
// microsecond. A token on the grid was written back, one between is a node's own. It is
// a multiple of core.TokenStep, so that the tokens of a grant end before the next point.
const grid = 1 << 14

// maxToken is the highest token that can be asked for: the nodes take up to twice as much,
// so that what is written back can grow from there.
const maxToken = 1 << 51

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
	// Claims that were refused may not have given back yet.
	v := b.again(ctx, b.await(ctx), time.Now(), func() bool { return true })
	if v != won {
		b.recall(ctx)
		return 0, &uncertain{op: "acquire", cause: b.failure(ctx, v)}
	}
	got, votes := b.votesOf()
	b.expel(ctx)
	for _, v := range votes {
		if v.grant.Token < c.MinToken || got != owner {
			b.recall(ctx)
			return 0, &uncertain{op: "acquire", cause: errors.New("another grant came between")}
		}
	}
	return c.MinToken, nil
}

// token returns the highest token of the votes, or one on the grid that a
// majority has, which is known then. It waits a moment for all votes: who sends
// the same claim at the same time then finds the same highest one, and who holds
// already finds the majority that knows its token, also where a node that was late
// has given itself a higher one. Without them a claim that is sent again can get a
// token of its own, which is higher and so does no harm to the resource.
func (b *ballot) token(ctx context.Context) (token uint64, known bool) {
	timer := time.NewTimer(b.store.timeout / 5)
	defer timer.Stop()
	for {
		whole := !b.promising() // before the votes are read
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
		if whole {
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
