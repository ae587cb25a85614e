package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Release implements core.Store: every node is told, and those that do not answer
// are told again in the background, until they do or what they have of the claim
// has ended.
//
// It returns nil when a majority of all nodes had the claim, and ErrLost when so
// many had not that no majority can have had it. If too few answer to tell, the
// outcome is unknown, even though some have released it.
//
// It does not wait for the nodes that make no difference, unless c is to be
// remembered for no time: such a claim may come again at once, also from another
// process, which knows nothing of a request that is still on its way from here and
// would end what the claim is granted next. So Release answers then when all
// nodes have, or when their time is over.
func (s *Store) Release(ctx context.Context, c core.Claim) error {
	if err := s.usable("release", &c); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("redlock: release: %w: %w", core.ErrUnavailable, context.Cause(ctx))
	}
	s.ledger.end(&c)
	if c.TTL == 0 {
		s.thin(ctx, &c, 0) // or what is on its way would have to be remembered after all
	}
	r := &resignation{store: s, claim: c, done: make(chan struct{}), pending: len(s.nodes)}
	for _, n := range s.nodes {
		r.send(ctx, n)
	}
	timer := time.NewTimer(s.moment() + s.timeout + s.timeout/10)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	return r.verdict(ctx)
}

// resignation is the answers of the nodes to one release.
type resignation struct {
	store *Store
	claim core.Claim

	mu      sync.Mutex
	pending int
	had     int
	hadNot  int
	failed  int // certainly not told
	bad     int // have refused the claim as such
	err     error
	decided bool
	done    chan struct{}
}

// send tells one node, once acquires of the claim that are on their way there have
// come back, or after a moment: a release that may overtake one has to be made again.
func (r *resignation) send(ctx context.Context, n *node) {
	s := r.store
	unsure, ttl := s.ledger.resign(&r.claim, n.index)
	if n.silent.Load() || s.ledger.underway(&r.claim, n.index) == nil {
		r.tell(ctx, n, unsure, ttl)
		return
	}
	s.run(func() {
		timer := time.NewTimer(s.moment())
		defer timer.Stop()
		for back := s.ledger.underway(&r.claim, n.index); back != nil; back = s.ledger.underway(&r.claim, n.index) {
			select {
			case <-back:
				continue
			case <-timer.C:
			}
			break
		}
		unsure, ttl := s.ledger.unsure(&r.claim, n.index)
		r.tell(ctx, n, unsure, ttl)
	})
}

// moment is how long a release waits for an acquire at most.
func (s *Store) moment() time.Duration { return min(firstGrace, s.timeout/4) }

func (r *resignation) tell(ctx context.Context, n *node, unsure bool, ttl time.Duration) {
	s, c := r.store, r.claim
	if unsure {
		c.TTL = max(c.TTL, ttl)
	}
	start := time.Now()
	s.call(ctx, n, s.timeout, func(ctx context.Context) error {
		return n.store.Release(ctx, c)
	}, func(err error) {
		s.report(ctx, n, start, err)
		k := kindOf(err)
		// The claim must not come to this node again if a release may still.
		again := k == unknown || k == granted && unsure || k == failed && c.TTL > 0
		s.ledger.left(&c, n.index, released{unknown: k == unknown, settled: k == lost, again: again, ended: true})
		if again {
			s.janitor.now(c, n.index, unsure || k == unknown)
		}
		r.settle(k, err)
	})
}

func (r *resignation) settle(k kind, err error) {
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
	n, q := len(r.store.nodes), r.store.quorum
	certain := r.claim.TTL > 0 && (r.had >= q || r.hadNot > n-q)
	if !r.decided && (certain || r.pending == 0) {
		r.decided = true
		close(r.done)
	}
}

func (r *resignation) verdict(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, q := len(r.store.nodes), r.store.quorum
	switch {
	case r.had >= q:
		return nil
	case r.hadNot > n-q:
		return fmt.Errorf("redlock: release: %w", core.ErrLost)
	case r.bad == n:
		return fmt.Errorf("redlock: release: %w", r.err)
	case r.failed == n:
		return fmt.Errorf("redlock: release: %w: %w", core.ErrUnavailable, r.err)
	}
	cause := r.err
	if ctx.Err() != nil {
		cause = context.Cause(ctx)
	} else if cause == nil {
		cause = errTimeout
	}
	return &uncertain{op: "release", cause: cause}
}
