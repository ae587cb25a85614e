package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Acquire implements store.Store. It sends the claim to all nodes at once. The claim is
// granted when a majority of all nodes has granted it and some of its time is left. Calls
// of nodes that have not answered by then go on in the background.
//
// Acquire waits for a majority until ctx is done, Limit has passed, or a grant could
// not be valid any more. If a majority has answered but is split, it waits for the
// others only for the time-out of a node.
//
// If the claim fails, the nodes that have granted it release it. They do so before Acquire
// returns if a majority answers but refuses. They do so in the background if there is no
// majority that answers, or if the majority came too late. The error then says that the
// outcome is unknown, and the caller releases the claim, as after any such error. A grant
// that comes after the end is released when it comes.
//
// A split vote is settled here: the claim that has the first node asks again a few times,
// and the other claims are released and ask one node before the others.
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
	c.Push = false // a node alone cannot admit it
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
	// At most a minority may still get the claim. Acquires can be on their way to more nodes
	// after several rounds, or when many goroutines send the same claim. If another process
	// then releases the claim, they make it anew, and no other claim gets a majority.
	s.awaitAcquires(ctx, &c, len(s.nodes)-s.quorum)
	if time.Since(start) >= g.Valid {
		b.release(ctx)
		return store.Grant{}, &uncertain{op: "acquire", cause: errTimeout}
	}
	return g, nil
}

// leastBallots is the least number of ballots for a claim that is refused although the key may
// be changing hands.
const leastBallots = 3

// vote has the nodes vote. If the claim is refused, it releases the nodes that it has got.
// If it had got some, or a late answer may bring one, the key is changing hands, perhaps
// without a new holder: a release has not reached all nodes yet, or another claim is being
// released as well. So the claim asks again, at least leastBallots times, and for at least
// half of a node's time.
//
// Each further ballot begins with one node alone, and asks the others only if that node does
// not refuse. So few of many such claims get on at a time, and the others keep no node from
// them.
//
// It does not ask the nodes that were overdue. While it waited for them, it would keep other
// claims from the nodes that it has got.
func (s *Store) vote(ctx context.Context, c store.Claim, start time.Time) (*ballot, verdict) {
	var last *ballot // that all nodes were asked in
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
		if !some || enough || !sleep(ctx, pause+rand.N(2*pause)) {
			return last, refused
		}
		overdue = b.overdue()
		pause = min(4*pause, longestPause)
	}
}

// timeFor reports whether ctx leaves time for d. A claim that was refused asks again only if
// the answers come in time: otherwise the outcome is unknown.
func timeFor(ctx context.Context, d time.Duration) bool {
	end, _ := ctx.Deadline()
	return time.Until(end) > d
}

// sleep waits for d, and returns false if ctx is done before.
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
