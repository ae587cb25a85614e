package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// ballot is the answers of the nodes to one claim. Those that come after the
// verdict are still looked after.
type ballot struct {
	store *Store
	claim core.Claim

	mu      sync.Mutex
	votes   []vote
	asked   []bool // a request is on its way
	verdict verdict
	final   bool          // it is over and not won, so what is granted late is of no use
	since   time.Time     // when nodes were asked last
	owner   string        // whose hold it has become, once won
	done    chan struct{} // closed at the verdict
	news    chan struct{} // receives when an answer has come
}

type vote struct {
	kind  kind
	grant core.Grant
	err   error
}

type verdict int

const (
	open    verdict = iota
	won             // a majority has granted
	refused         // a majority answers, but not with a grant
	dead            // there is no majority that answers
	left            // the caller went
)

func (s *Store) newBallot(c core.Claim) *ballot {
	n := len(s.nodes)
	return &ballot{store: s, claim: c, votes: make([]vote, n), asked: make([]bool, n), news: make(chan struct{}, 1)}
}

// ask sends the claim to all nodes for which again is true.
func (b *ballot) ask(ctx context.Context, again func(v vote) bool) {
	s := b.store
	b.mu.Lock()
	b.verdict, b.done, b.since = open, make(chan struct{}), time.Now()
	var nodes []*node
	tickets := make([]ticket, len(s.nodes))
	for i, n := range s.nodes {
		if b.asked[i] || !again(b.votes[i]) {
			continue
		}
		if err := s.quarantineOf(i); err != nil {
			b.votes[i] = vote{kind: failed, err: err}
			s.lookAgain()
			continue
		}
		if tickets[i], b.asked[i] = s.ledger.ask(&b.claim, i); !b.asked[i] {
			b.votes[i] = vote{kind: failed, err: errLeaving}
			continue
		}
		b.votes[i] = vote{}
		nodes = append(nodes, n)
	}
	if b.decide(); b.verdict == dead {
		for _, n := range nodes {
			b.asked[n.index], b.votes[n.index] = false, vote{kind: failed, err: errNotAsked}
			s.ledger.asked(&b.claim, n.index, tickets[n.index], answer{})
		}
		nodes = nil
	}
	b.mu.Unlock()
	for _, n := range nodes {
		var v vote
		start := time.Now()
		s.call(ctx, n, s.budget(b.claim.TTL), func(ctx context.Context) error {
			err := s.calm(ctx, &b.claim, n.index, tickets[n.index])
			if err != nil {
				v.kind = failed
				return err
			}
			if v.grant, err = n.store.Acquire(ctx, b.claim); err != nil {
				v.kind = kindOf(err)
				return err
			}
			if err = s.counts(ctx, n); err != nil {
				v.kind = uncounted
				return err
			}
			v.kind = granted
			return nil
		}, func(err error) {
			if v.err = err; v.kind == silent {
				v.kind = kindOf(err) // it was not called
			}
			s.report(ctx, n, start, err)
			b.settle(ctx, n, tickets[n.index], v)
		})
	}
}

// errNotAsked is said of nodes that were not asked, since the others were too few.
var errNotAsked = errors.New("not asked")

var errLeaving = errors.New("the node may still be told to release the claim")

// calm waits until no release of the claim is on its way to the node, and fails if
// one of them had no answer meanwhile.
func (s *Store) calm(ctx context.Context, c *core.Claim, i int, t ticket) error {
	if t.quiet == nil {
		return nil
	}
	select {
	case <-t.quiet:
	case <-ctx.Done():
		return errLeaving
	}
	if s.ledger.banned(c, i) {
		return errLeaving
	}
	return nil
}

// settle notes an answer. What is granted too late, or to the wrong owner, is
// given back.
func (b *ballot) settle(ctx context.Context, n *node, t ticket, v vote) {
	b.mu.Lock()
	fate := b.store.ledger.asked(&b.claim, n.index, t, answer{
		unknown: v.kind == unknown, holds: b.holds(v),
		unwanted: b.final || b.verdict == won && v.grant.Owner != b.owner,
	})
	if fate != stays {
		v.kind, v.err = failed, errLeaving // what is given back is no vote
	}
	b.votes[n.index], b.asked[n.index] = v, false
	if b.verdict == open {
		b.decide()
	}
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
	if fate == gone {
		b.store.sendBack(ctx, n, b.claim, func(error) {})
	}
}

// holds tells that v left a hold at its node.
func (b *ballot) holds(v vote) bool { return v.kind == granted || v.kind == uncounted }

// decide sets the verdict if it is certain.
func (b *ballot) decide() {
	s := b.store
	owners := make(map[string]int, 1)
	pending, answered, most := 0, 0, 0
	for i, v := range b.votes {
		switch {
		case b.asked[i]:
			pending++
			continue
		case v.kind == granted:
			owners[v.grant.Owner]++
			if owners[v.grant.Owner] > most {
				most, b.owner = owners[v.grant.Owner], v.grant.Owner
			}
		}
		if v.kind != silent && v.kind != failed && v.kind != unknown && v.kind != uncounted {
			answered++
		}
	}
	switch {
	case most >= s.quorum:
		b.verdict = won
	case most+pending >= s.quorum:
		return
	case answered >= s.quorum:
		b.verdict = refused
	case answered+pending < s.quorum:
		b.verdict = dead
	default:
		return // whether the others answer decides what to say
	}
	close(b.done)
}

// await waits for the verdict until the time of a node is over, or ctx ends.
func (b *ballot) await(ctx context.Context) verdict {
	timer := time.NewTimer(b.store.budget(b.claim.TTL) + b.store.timeout/10)
	defer timer.Stop()
	expired := false
	select {
	case <-b.done:
	case <-ctx.Done():
	case <-timer.C:
		expired = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.verdict == open {
		b.verdict = left
		if expired {
			b.verdict = b.withoutTheSilent()
		}
	}
	return b.verdict
}

// withoutTheSilent is the verdict if those that have not answered do not count.
func (b *ballot) withoutTheSilent() verdict {
	answered := 0
	for i, v := range b.votes {
		if !b.asked[i] && v.kind > uncounted && v.kind < failed || !b.asked[i] && v.kind == granted {
			answered++
		}
	}
	if answered >= b.store.quorum {
		return refused
	}
	return dead
}

// overdue returns the votes of those that have not answered in time.
func (b *ballot) overdue() []vote {
	b.mu.Lock()
	defer b.mu.Unlock()
	votes := make([]vote, len(b.votes))
	for i, v := range b.votes {
		if b.asked[i] || v.kind == unknown {
			votes[i] = vote{kind: unknown, err: errNodeTimeout}
		}
	}
	return votes
}

// promising tells that a node has still to answer which is not known to be silent.
func (b *ballot) promising() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, asked := range b.asked {
		if asked && !b.store.nodes[i].silent.Load() {
			return true
		}
	}
	return false
}

// votesOf returns the votes for the owner, once won.
func (b *ballot) votesOf() (owner string, votes []vote) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range b.votes {
		if !b.asked[i] && v.kind == granted && v.grant.Owner == b.owner {
			votes = append(votes, v)
		}
	}
	return b.owner, votes
}
