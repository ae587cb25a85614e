package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Release implements store.Store. It sends the claim to every node. A node that does
// not answer gets the release again in the background, until it answers or its hold of
// the claim has expired. With a TTL of 0, there is an exception for a node that
// certainly did not receive the release. It gets the release again only if an acquire
// of the claim may still arrive there.
//
// Release returns nil if a majority of all nodes had the claim. It returns ErrLost if
// so many nodes lacked the claim that no majority can have had it. If too few nodes
// answer before ctx is done or Limit has passed, the outcome is unknown. Nodes may then
// have released the claim. They can also release it later, even if no node has received
// the first request. With a TTL of 0, the error matches store.ErrUnavailable if
// certainly no node has received the request.
//
// Release does not wait for nodes that cannot change the result, except for a claim
// with a TTL of 0. Such a release leaves no tombstone, so the claim can be sent again
// at once, even by another process. A release of this process that is still in flight
// would end the new grant. So with a TTL of 0, Release waits until all nodes have
// answered. After the time-out of a node, it waits only until the nodes that have
// answered can decide.
func (s *Store) Release(ctx context.Context, c store.Claim) error {
	if err := s.usable("release", &c); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("redlock: release: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	s.requests.stopHealing(&c)
	ctx, cancel := s.question(ctx, s.Limit())
	defer cancel()
	if c.TTL == 0 {
		waiting, stop := context.WithTimeout(ctx, s.timeout)
		s.awaitAcquires(waiting, &c, 0) // no tombstone would refuse them
		stop()
	}
	r := &release{store: s, claim: c, done: make(chan struct{}), pending: len(s.nodes)}
	for _, n := range s.nodes {
		r.send(ctx, n)
	}
	timer := time.NewTimer(s.overtakeGrace() + s.timeout)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-ctx.Done():
	case <-timer.C:
		r.mu.Lock()
		r.late = true
		r.decide()
		r.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
		}
	}
	return r.verdict(ctx)
}

// release collects the answers of the nodes to one Release.
type release struct {
	store *Store
	claim store.Claim

	mu      sync.Mutex
	pending int
	had     int
	hadNot  int
	failed  int // the number of nodes that certainly got no request
	bad     int // the number of nodes that refused the claim as invalid or unsupported
	err     error
	late    bool // the time-out of a node has passed: the nodes that have answered may decide
	decided bool
	done    chan struct{}
}

// send releases the claim at one node. It first waits briefly for acquires of the claim
// that are in flight to the node, unless the node is silent. A release that can
// overtake an acquire has to be sent again.
func (r *release) send(ctx context.Context, n *node) {
	s := r.store
	unsure, ttl := s.requests.fullReleaseSent(&r.claim, n.index)
	if n.isSilent() || s.requests.acquireUnderWay(&r.claim, n.index) == nil {
		r.sendNow(ctx, n, unsure, ttl)
		return
	}
	s.run(func() {
		timer := time.NewTimer(s.overtakeGrace())
		defer timer.Stop()
		for returned := s.requests.acquireUnderWay(&r.claim, n.index); returned != nil; returned = s.requests.acquireUnderWay(&r.claim, n.index) {
			select {
			case <-returned:
				continue
			case <-timer.C:
			}
			break
		}
		unsure, ttl := s.requests.unsure(&r.claim, n.index)
		r.sendNow(ctx, n, unsure, ttl)
	})
}

func (r *release) sendNow(ctx context.Context, n *node, unsure bool, ttl time.Duration) {
	s, c := r.store, r.claim
	if unsure {
		c.TTL = max(c.TTL, ttl)
	}
	start := time.Now()
	s.call(ctx, n, func(ctx context.Context) error {
		return n.store.Release(ctx, c)
	}, func(err error) {
		s.report(ctx, n, start, err)
		k := kindOf(err)
		// The claim must not be sent to this node again while a release may still
		// arrive there.
		again := k == unknown || k == granted && unsure || k == failed && c.TTL > 0
		s.requests.releaseDone(&c, n.index, releaseOutcome{unknown: k == unknown, tombstone: k == lost, again: again, full: true})
		if again {
			s.cleanup.now(c, n.index, unsure || k == unknown)
		}
		r.settle(k, err)
	})
}

func (r *release) settle(k kind, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending--
	switch k {
	case granted:
		r.had++
	case lost:
		r.hadNot++
	default:
		switch k {
		case failed:
			r.failed++
		case invalid, unsupported:
			r.bad++
		}
		if r.err == nil {
			r.err = err
		}
	}
	r.decide()
}

// decide ends the wait if the pending answers cannot change the result, or if the other
// nodes may decide without them. The caller holds the mutex.
func (r *release) decide() {
	n, q := len(r.store.nodes), r.store.quorum
	certain := r.had >= q || r.hadNot > n-q
	open := !certain && (r.had+r.pending >= q || r.hadNot+r.pending > n-q)
	wait := r.claim.TTL == 0 && !r.late && r.pending > 0
	if !r.decided && !open && !wait {
		r.decided = true
		close(r.done)
	}
}

func (r *release) verdict(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, q := len(r.store.nodes), r.store.quorum
	switch {
	case r.had >= q:
		return nil
	case r.hadNot > n-q:
		return fmt.Errorf("redlock: release: %w", store.ErrLost)
	case r.bad == n:
		return fmt.Errorf("redlock: release: %w", r.err)
	case r.failed == n && r.claim.TTL == 0: // otherwise the cleanup releases the claim
		return fmt.Errorf("redlock: release: %w: %w", store.ErrUnavailable, r.err)
	}
	return &uncertain{op: "release", cause: causeOf(ctx, r.err)}
}

// overtakeGrace returns the maximum time for which the release at a node waits for an
// acquire that is in flight to that node.
func (s *Store) overtakeGrace() time.Duration { return min(firstGrace, s.timeout/4) }
