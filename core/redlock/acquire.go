package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/store"
)

// Acquire implements store.Store. It sends the claim to all nodes at once. The claim is
// granted when a majority of all nodes has granted it and some of its validity is left.
// Calls to nodes that have not answered by then continue in the background.
//
// Acquire waits for a majority until ctx is done, Limit has passed, a grant could not
// be valid any more, or so many nodes have failed that no majority can answer. If a
// majority has answered but cannot decide, Acquire waits for the other nodes only until
// the time-out of a node has passed.
//
// If the claim fails, the nodes that have granted it release it. If a majority answers
// but refuses, Acquire waits for these releases. The limit of this wait is the time-out
// of a node, or the longest wait of this Acquire for answers if that was longer. If no
// majority answers, or the majority is too late, the releases continue in the
// background. The error then reports an unknown outcome, unless certainly no node has
// granted the claim. After an unknown outcome the caller has to release the claim. A
// grant that arrives after the failure is released on arrival, unless the claim was
// sent again.
//
// Acquire also settles split votes between several claims. The first node at which the
// key is held decides. If this node has granted the key to the claim, Acquire asks the
// busy nodes again a few times. Otherwise Acquire releases the claim. If Acquire then
// asks again, it asks one node before the others.
func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if err := s.usable("acquire", &c); err != nil {
		return store.Grant{}, err
	}
	start := time.Now()
	ctx, cancel := s.question(ctx, s.valid(c.TTL))
	defer cancel()
	if ctx.Err() == nil {
		if err := s.membership.ready(ctx); err != nil {
			return store.Grant{}, fmt.Errorf("redlock: acquire: %w", err)
		}
	}
	if ctx.Err() != nil {
		return store.Grant{}, fmt.Errorf("redlock: acquire: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	c.Push = false // a node alone cannot decide to push the claim
	b, v := s.vote(ctx, c, start)
	if v != won {
		return store.Grant{}, b.failure(ctx, v)
	}
	owner, votes := b.winners()
	g := store.Grant{Owner: owner, Valid: s.valid(c.TTL)}
	for _, v := range votes {
		if v.grant.Valid > 0 {
			g.Valid = min(g.Valid, s.valid(v.grant.Valid))
		}
	}
	b.releaseOtherOwners(ctx)
	if s.fencing && c.Weight == store.All && c.Limit == store.All {
		var err error
		if g.Token, err = s.fence(ctx, c, owner, b); err != nil {
			b.release(ctx)
			return store.Grant{}, err
		}
	}
	// When Acquire returns, acquires can be in flight to at most a minority of the
	// nodes. Without this wait, more could be in flight after several rounds, or when
	// many goroutines send the same claim. If another process then released the claim,
	// these acquires would create the claim again. No other claim would get a majority.
	s.awaitAcquires(ctx, &c, len(s.nodes)-s.quorum)
	if time.Since(start) >= g.Valid {
		b.release(ctx)
		return store.Grant{}, &uncertain{op: "acquire", cause: errTimeout}
	}
	return g, nil
}

// leastBallots is the minimum number of ballots for a refused claim while the key may
// be changing hands.
const leastBallots = 3

// vote makes the nodes vote. If the claim is refused, the nodes that have granted it
// release it. If a node had granted the claim, or may still grant it by a late answer,
// the key may be changing hands without a new holder. For example, a release has not
// reached all nodes yet, or another claim is being released too. In this case vote asks
// again. It stops when there were leastBallots ballots and half of a node's time (see
// leastRetries) has passed. It stops earlier if ctx leaves no time for another ballot.
//
// Each further ballot asks one node first, and asks the other nodes only if that node
// does not refuse. So only a few of many such claims proceed at a time, and the refused
// claims do not take nodes from them.
//
// A further ballot does not ask nodes whose answers are overdue. While the ballot waited
// for these answers, its claim would block other claims at the nodes that have granted
// it.
func (s *Store) vote(ctx context.Context, c store.Claim, start time.Time) (*ballot, verdict) {
	var last *ballot // the last ballot in which all nodes were asked
	pause, overdue, nodeTime, took := firstPause, votes(nil), s.timeout, time.Duration(0)
	for round := 1; ; round++ {
		b := s.newBallot(c)
		copy(b.votes, overdue)
		led := round == 1 || b.lead(ctx, round-2)
		some := false
		if led {
			last = b
			b.begun = time.Now()
			b.ask(ctx, func(_ int, v vote) bool { return v.kind == silent })
			v := b.retryIfFirst(ctx, b.await(ctx))
			if v == won {
				return b, v
			}
			if v != refused {
				b.release(ctx)
				return b, v
			}
			some = time.Since(b.begun) > s.timeout && b.expectsVotes()
		}
		nodeTime, took = max(nodeTime, b.took), max(took, b.took)
		some = b.releaseAndWait(ctx, nodeTime) || some || !led
		enough := round >= leastBallots && time.Since(start) > nodeTime/2 || !timeFor(ctx, 2*took)
		if !some || enough || clock.Sleep(ctx, pause+rand.N(2*pause)) != nil {
			return last, refused
		}
		overdue = b.overdue()
		pause = min(4*pause, longestPause)
	}
}

// timeFor reports whether more than the duration d is left before the deadline of ctx. A
// refused claim asks again only if the answers can arrive in time. Otherwise the outcome
// would be unknown.
func timeFor(ctx context.Context, d time.Duration) bool {
	end, _ := ctx.Deadline()
	return time.Until(end) > d
}
