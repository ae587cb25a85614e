package redlock

import (
	"context"
	"errors"

	"github.com/lockkit/lockkit/core/store"
)

// tokenStep divides each token that fence writes back. A token that is not a multiple
// of tokenStep was assigned by a node itself, from its clock in microseconds. tokenStep
// is a multiple of store.TokenStep, so all store.TokenStep tokens of a grant are below
// the next multiple of tokenStep.
const tokenStep = 1 << 14

// maxToken is the highest token that a claim can require. The nodes accept up to 2^52,
// so tokens that are written back can grow beyond maxToken.
const maxToken = 1 << 51

// fence returns the token of a claim that was granted. The token is at least the highest
// token of a majority, and a majority has stored it before fence returns. Any later
// majority shares a node with this majority, so the next grant gets a higher token. The
// exception is a token ahead of the clock, if the shared node was restarted in between.
//
// A node that was late can still assign its own token to the same hold. So fence rounds
// up. The token of a node that is only a little late is then lower. The rounded token
// then stays the highest, and other holds of the owner get this token too.
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
	// Nodes may still be busy with refused claims that are not released yet.
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
