package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	final   bool          // nobody asks again, so what is granted late is of no use
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
	b.verdict, b.done = open, make(chan struct{})
	var nodes []*node
	tickets := make([]ticket, len(s.nodes))
	for i, n := range s.nodes {
		if b.asked[i] || !again(b.votes[i]) {
			continue
		}
		if s.barred(i) {
			b.votes[i] = vote{kind: failed, err: errQuarantine}
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
			b.asked[n.index], b.votes[n.index] = false, vote{kind: failed, err: errTimeout}
			s.ledger.asked(&b.claim, n.index, tickets[n.index], answer{})
		}
		nodes = nil
	}
	b.mu.Unlock()
	for _, n := range nodes {
		var v vote
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
			b.settle(ctx, n, tickets[n.index], v)
		})
	}
}

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
	b.votes[n.index], b.asked[n.index] = v, false
	late := b.verdict
	if b.verdict == open {
		b.decide()
	}
	gone := b.store.ledger.asked(&b.claim, n.index, t, answer{
		unknown: v.kind == unknown, holds: b.holds(v),
		unwanted: late == refused && b.final || late == won && v.grant.Owner != b.owner,
	})
	b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
	if gone {
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

// settleFirst waits a moment for the nodes before the first one that has answered:
// without them it is not certain who the favourite is.
func (b *ballot) settleFirst(ctx context.Context, elapsed time.Duration) {
	timer := time.NewTimer(min(b.store.timeout, max(firstGrace, 2*elapsed)))
	defer timer.Stop()
	for b.firstIsSilent() {
		select {
		case <-b.news:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (b *ballot) firstIsSilent() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range b.votes {
		if b.asked[i] || v.kind == granted || v.kind == busy {
			return b.asked[i]
		}
	}
	return false
}

// favourite tells that this claim has the first of the nodes that have granted it
// to somebody. In a split vote that is one claim only: it may go on asking, while
// the others give back.
func (b *ballot) favourite() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, v := range b.votes {
		if !b.asked[i] && (v.kind == granted || v.kind == busy) {
			return v.kind == granted
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

// failure is the error of a ballot that was not won.
func (b *ballot) failure(ctx context.Context, v verdict) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var count [unknown + 1]int
	var first [unknown + 1]error
	pending := 0
	var pauses []time.Duration
	for i, v := range b.votes {
		if b.asked[i] {
			pending++
			continue
		}
		count[v.kind]++
		if first[v.kind] == nil {
			first[v.kind] = v.err
		}
		if e, ok := errors.AsType[*core.BusyError](v.err); ok {
			pauses = append(pauses, e.RetryAfter)
		}
	}
	n, q := len(b.votes), b.store.quorum
	switch {
	case count[unsupported] > 0:
		return fmt.Errorf("redlock: acquire: %w", first[unsupported])
	case v == refused && count[lost] > n-q, v == refused && count[busy] == 0 && count[lost] > 0:
		return fmt.Errorf("redlock: acquire: released before: %w", core.ErrLost)
	case v == refused && count[invalid] > 0 && count[invalid]+count[granted] >= q:
		return fmt.Errorf("redlock: acquire: %w", first[invalid])
	case v == refused:
		e := &core.BusyError{Key: b.claim.Key}
		if len(pauses) > 0 {
			e.RetryAfter = slices.Min(pauses)
		}
		return e
	}
	reason := errors.Join(first[unknown], first[uncounted], first[failed])
	if v == left {
		reason = context.Cause(ctx)
	} else if reason == nil || pending > 0 {
		reason = errors.Join(errTimeout, reason)
	}
	if count[granted]+count[uncounted]+count[unknown]+pending == 0 {
		return fmt.Errorf("redlock: acquire: %d of %d nodes answer: %w: %w", count[busy]+count[lost], n, core.ErrUnavailable, reason)
	}
	return &uncertain{op: "acquire", cause: reason}
}

// uncertain is an error whose outcome is unknown, whatever single nodes have said:
// it matches the end of a context, and no answer.
type uncertain struct {
	op    string
	cause error
}

func (e *uncertain) Error() string {
	return fmt.Sprintf("redlock: %s: outcome unknown: %v", e.op, e.cause)
}

// Is hides what a single node answered: it is not the answer of the majority.
func (e *uncertain) Is(target error) bool {
	for _, answer := range []error{core.ErrBusy, core.ErrLost, core.ErrInvalid, core.ErrUnsupported, core.ErrUnavailable, core.ErrClosed} {
		if target == answer {
			return false
		}
	}
	return errors.Is(e.cause, target)
}
