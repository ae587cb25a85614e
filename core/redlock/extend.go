package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Extend implements store.Store. A claim is extended when a majority of all nodes has
// extended it. A claim is lost when so many nodes lack its hold that no majority can
// have the hold. Extend waits until no further answer can decide a claim, ctx is done,
// Limit has passed, or no extension could be valid any more.
//
// If a majority has confirmed a claim, Extend restores the claim in the background at
// each node that lacks it. It does not do so if the claim was released, or after half
// of its validity. It also leaves out a node to which an acquire of the claim was in
// flight when Extend began. So a node that was restarted or cut off for a while does
// not reduce the lock to a bare majority. After a loss no node gets the claim again,
// because another claim may already hold the key.
func (s *Store) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	answers := make([]store.Extension, len(claims))
	if ctx.Err() != nil {
		for i := range answers {
			answers[i].Err = fmt.Errorf("redlock: extend: %w: %w", store.ErrUnavailable, context.Cause(ctx))
		}
		return answers
	}
	x := &extension{store: s, start: time.Now(), done: make(chan struct{}), pending: len(s.nodes)}
	var ask []store.Claim // a copy, because calls use it after Extend has returned
	for i, c := range claims {
		if answers[i].Err = s.checkTTL("extend", &c); answers[i].Err == nil {
			c.Wait, c.Fair, c.Record, c.Keep = false, false, nil, 0
			ask = append(ask, c)
		}
	}
	if len(ask) == 0 {
		return answers
	}
	var longest time.Duration
	for _, c := range ask {
		longest = max(longest, s.valid(c.TTL))
	}
	x.claims, x.tallies = ask, make([]tally, len(ask))
	x.unsettled.Add(len(s.nodes))
	x.underWay = s.requests.extendSent(ask)
	for _, n := range s.nodes {
		x.send(ctx, n)
	}
	s.run(func() {
		x.unsettled.Wait()
		s.requests.extendDone(ask)
	})
	ctx, cancel := s.question(ctx, longest)
	defer cancel()
	select {
	case <-x.done:
	case <-ctx.Done():
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	k := 0
	for i := range answers {
		if answers[i].Err == nil {
			answers[i] = x.answer(ctx, k)
			k++
		}
	}
	return answers
}

// extension collects the answers of the nodes to one Extend. An answer that arrives
// after the caller has left can still show that a node lacks a claim.
type extension struct {
	store  *Store
	claims []store.Claim
	start  time.Time

	underWay map[claimAt]bool // acquires that were in flight at the start

	unsettled sync.WaitGroup // calls to nodes, and runs of heal

	mu      sync.Mutex
	tallies []tally
	pending int
	decided bool
	done    chan struct{}
}

// tally counts the answers for one claim.
type tally struct {
	have []int // the nodes that have extended the claim
	lack []int // the nodes that lack the hold, until heal is called for them
	lost int   // the number of nodes that lack the hold
	err  error

	valid time.Duration // the shortest validity in the answers; 0 if no node has sent one
}

func (x *extension) send(ctx context.Context, n *node) {
	var got []store.Extension
	start := time.Now()
	x.store.call(ctx, n, func(ctx context.Context) error {
		got = n.store.Extend(ctx, x.claims)
		return nil
	}, func(err error) {
		said := err
		if len(got) > 0 {
			said = got[0].Err
		}
		x.store.report(ctx, n, start, said)
		x.settle(ctx, n, got, err)
	})
}

func (x *extension) settle(ctx context.Context, n *node, got []store.Extension, err error) {
	s := x.store
	x.mu.Lock()
	x.pending--
	open := false
	heal := make(map[int][]int) // claims by node
	for i := range x.claims {
		t := &x.tallies[i]
		e := err
		switch {
		case e != nil:
		case i >= len(got):
			e = errors.New("no answer")
		default:
			e = got[i].Err
		}
		switch {
		case e == nil:
			t.have = append(t.have, n.index)
			if v := got[i].Valid; v > 0 && (t.valid == 0 || v < t.valid) {
				t.valid = v
			}
		case errors.Is(e, store.ErrLost):
			t.lost++
			t.lack = append(t.lack, n.index)
		case t.err == nil:
			t.err = e
		}
		confirmed := len(t.have) >= s.quorum
		if confirmed && !s.unhealed {
			for _, at := range t.lack {
				if !x.underWay[claimAt{i, at}] {
					heal[at] = append(heal[at], i)
				}
			}
			t.lack = nil
		}
		lost := t.lost > len(s.nodes)-s.quorum
		canBe := len(t.have)+x.pending >= s.quorum || t.lost+x.pending > len(s.nodes)-s.quorum
		open = open || !confirmed && !lost && canBe
	}
	if !x.decided && !open {
		x.decided = true
		close(x.done)
	}
	x.mu.Unlock()
	for at, lacks := range heal {
		x.heal(ctx, s.nodes[at], lacks)
	}
	x.unsettled.Done()
}

func (x *extension) answer(ctx context.Context, i int) store.Extension {
	s, t := x.store, &x.tallies[i]
	valid := s.valid(x.claims[i].TTL)
	if t.valid > 0 {
		valid = min(valid, s.valid(t.valid))
	}
	switch {
	case len(t.have) >= s.quorum && time.Since(x.start) < valid:
		return store.Extension{Valid: valid}
	case t.lost > len(s.nodes)-s.quorum:
		return store.Extension{Err: fmt.Errorf("redlock: extend: %w", store.ErrLost)}
	}
	return store.Extension{Err: &uncertain{op: "extend", cause: causeOf(ctx, t.err)}}
}

// heal restores the claims that node n lacks, in the background. It stops at the first
// call that is not answered. It also stops when half of a claim's validity has passed
// since the extension began, or when the Store is closed. With WithFencing it stops if
// no majority reports the token of an exclusive claim. The next Extend tries again.
func (x *extension) heal(ctx context.Context, n *node, lacks []int) {
	s := x.store
	x.unsettled.Add(1)
	s.run(func() {
		defer x.unsettled.Done()
		for _, i := range lacks {
			c := x.claims[i]
			if s.ctx.Err() != nil || time.Since(x.start) >= s.valid(c.TTL)/2 || !x.addToken(ctx, &c, i) {
				return
			}
			r, ok := s.requests.healSent(&c, n.index)
			if !ok {
				continue
			}
			settled := make(chan kind, 1)
			s.call(ctx, n, func(ctx context.Context) error {
				err := s.awaitReleases(ctx, &c, n.index, r)
				if err == nil {
					_, err = n.store.Acquire(ctx, c)
				}
				return err
			}, func(err error) {
				k := kindOf(err)
				if s.requests.acquireDone(&c, n.index, r, acquireOutcome{unknown: k == unknown, granted: k == granted}) == releaseNow {
					s.releaseGrant(ctx, n, c, func(error) {})
				}
				settled <- k
			})
			if k := <-settled; k == unknown || k == failed {
				return
			}
		}
	})
}

// addToken adds the token of the hold to c, which is claim i, before c is restored at a
// node. Otherwise no node would know the token after all nodes were replaced one by
// one. addToken returns false if no majority reports the token. Without WithFencing,
// and for a claim that is not exclusive, it returns true and adds no token.
func (x *extension) addToken(ctx context.Context, c *store.Claim, i int) bool {
	s := x.store
	if !s.fencing || c.Weight < store.All {
		return true
	}
	x.mu.Lock()
	have := slices.Clone(x.tallies[i].have)
	x.mu.Unlock()
	known := 0
	for _, at := range have {
		if s.ctx.Err() != nil {
			return false // otherwise Close would wait for each node in turn
		}
		r, ok := s.requests.healSent(c, at)
		if !ok {
			continue
		}
		tokens := make(chan uint64, 1)
		n := s.nodes[at]
		var g store.Grant
		s.call(ctx, n, func(ctx context.Context) (err error) {
			if err = s.awaitReleases(ctx, c, at, r); err == nil {
				g, err = n.store.Acquire(ctx, *c)
			}
			return err
		}, func(err error) {
			if s.requests.acquireDone(c, at, r, acquireOutcome{unknown: kindOf(err) == unknown, granted: err == nil}) == releaseNow {
				s.releaseGrant(ctx, n, *c, func(error) {})
			}
			if err != nil {
				g.Token = 0
			}
			tokens <- g.Token
		})
		if token := <-tokens; token > 0 {
			known++
			c.MinToken = max(c.MinToken, token)
		}
	}
	return known >= s.quorum
}
