package redlock

import (
	"context"
	"errors"

	"github.com/lockkit/lockkit/core/store"
)

// tokenStep divides each token that fence writes back, in the nodes' unit of a
// microsecond. Any other token is a node's own. tokenStep is a multiple of
// store.TokenStep, so that the tokens of a grant end before the next multiple.
const tokenStep = 1 << 14

// maxToken is the highest token that can be asked for. The nodes take up to twice as much,
// so that tokens that are written back can grow from there.
const maxToken = 1 << 51

// fence returns the token of a claim that was granted. The token is not lower than the
// highest one of a majority, and it is written to a majority before fence returns. Any later
// majority has a node in common with that one, and so gets a higher token.
//
// A node that was late may still give itself a token of its own for the same hold. Rounding
// up keeps that one lower, so that other holds of the owner get the same token.
func (s *Store) fence(ctx context.Context, c store.Claim, owner string, b *ballot) (uint64, error) {
	token, known := b.token(ctx)
	if known {
		return token, nil
	}
	if token%tokenStep != 0 {
		token = (token/tokenStep + 1) * tokenStep
	}
	c.MinToken, c.Wait = max(c.MinToken, token), false
	b = s.newBallot(c)
	b.ask(ctx, func(int, vote) bool { return true })
	// Nodes may still be busy with claims that were refused and are not released yet.
	v := b.await(ctx)
	v = b.retry(ctx, v, func() bool { return true })
	if v != won {
		b.release(ctx)
		return 0, &uncertain{op: "acquire", cause: b.failure(ctx, v)}
	}
	got, votes := b.winners()
	b.releaseOtherOwners(ctx)
	for _, v := range votes {
		if v.grant.Token < c.MinToken || got != owner {
			b.release(ctx)
			return 0, &uncertain{op: "acquire", cause: errors.New("another grant came between")}
		}
	}
	return c.MinToken, nil
}
