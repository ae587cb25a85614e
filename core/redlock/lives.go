package redlock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// lives is what is known of the servers behind the nodes.
//
// A server that was restarted may have forgotten holds, so its votes do not count
// until every hold that it can have granted before has ended. In a cluster that
// is brand-new there is nothing to forget: if all servers are young, and all of
// them take the mark of exactly these lives, they may vote. Whoever comes later
// and finds the same lives takes the same mark; if one was restarted since, the
// mark differs, and the others, which have the first one, refuse it.
type lives struct {
	mu     sync.Mutex
	known  []life
	asked  bool      // the first look was taken
	next   time.Time // not to look again before
	looks  bool      // somebody looks
	looked chan struct{}
}

type life struct {
	info    core.NodeInfo
	at      time.Time // when info was true; zero if never
	asked   time.Time // when the call that told it began
	vouched string    // the ID of a life that may vote although it is young
}

// lookEvery is how often the servers are asked again while some may not vote.
const lookEvery = 100 * time.Millisecond

// lookTime is how long all nodes together have to answer a look, which dials them
// for the first time. It is rare, so it may take longer than a vote.
func (s *Store) lookTime() time.Duration { return max(s.timeout, 250*time.Millisecond) }

// markKey is the key of the mark at the nodes.
const markKey = "lockkit.redlock.lives"

// Check asks every node which server it is, and returns nil if all could be asked
// and they are different servers, none a replica, or an error that says what is
// wrong: core.ErrInvalid for the same server twice or a replica,
// core.ErrUnavailable if one does not answer or its vote does not count yet. Nodes
// that cannot tell are not looked at.
func (s *Store) Check(ctx context.Context) error {
	if err := s.look(ctx, true); err != nil {
		return fmt.Errorf("redlock: check: %w", err)
	}
	if err := s.fault(); err != nil {
		return fmt.Errorf("redlock: check: %w", err)
	}
	for i := range s.nodes {
		if err := s.quarantineOf(i); err != nil {
			return fmt.Errorf("redlock: check: node %d: %w", i, err)
		}
	}
	return nil
}

// ready looks at the servers before the first claim, and refuses those that
// cannot make up a quorum.
func (s *Store) ready(ctx context.Context) error {
	if !s.tellsAge() {
		return nil
	}
	s.lives.mu.Lock()
	asked := s.lives.asked
	s.lives.mu.Unlock()
	if !asked {
		_ = s.look(ctx, false) // who did not answer is judged when it votes
	}
	err := s.fault()
	if err != nil {
		s.lookAgain()
	}
	return err
}

// fault says why the nodes, as far as they are known, are no quorum.
func (s *Store) fault() error {
	s.lives.mu.Lock()
	defer s.lives.mu.Unlock()
	for i, a := range s.lives.known {
		if a.at.IsZero() {
			continue
		}
		if a.info.Replica {
			return fmt.Errorf("node %d is a replica: %w", i, core.ErrInvalid)
		}
		for j, b := range s.lives.known[:i] {
			if !b.at.IsZero() && a.info.ID == b.info.ID {
				return fmt.Errorf("nodes %d and %d are the same server: %w", j, i, core.ErrInvalid)
			}
		}
	}
	return nil
}

// judge notes what node i is, and says why its votes do not count, if so.
func (s *Store) judge(i int, asked time.Time, info core.NodeInfo) error {
	s.note(i, asked, info)
	if info.Replica {
		return fmt.Errorf("node %d is a replica: %w", i, core.ErrUnavailable)
	}
	if err := s.quarantineOf(i); err != nil {
		s.lookAgain()
		return err
	}
	return nil
}

func (s *Store) note(i int, asked time.Time, info core.NodeInfo) {
	s.lives.mu.Lock()
	defer s.lives.mu.Unlock()
	l := &s.lives.known[i]
	l.info, l.asked, l.at = info, asked, time.Now()
}

// youth is for how long a server is too young to vote.
func (s *Store) youth(l *life) time.Duration {
	if s.quarantine <= 0 {
		return 0
	}
	return 2*s.quarantine - s.valid(s.quarantine) - l.info.Age - time.Since(l.at) // with the drift on top
}

// lookAgain looks at the servers in the background, not too often.
func (s *Store) lookAgain() {
	s.lives.mu.Lock()
	due := !s.lives.looks && time.Now().After(s.lives.next)
	s.lives.mu.Unlock()
	if due && s.ctx.Err() == nil {
		s.run(func() { _ = s.look(s.ctx, true) })
	}
}

// look asks all servers, one look at a time, and has those of a brand-new cluster
// vouched for. If somebody else has done so meanwhile, that will do, unless it
// shall anyway.
func (s *Store) look(ctx context.Context, anyway bool) error {
	l := &s.lives
	l.mu.Lock()
	for l.looks {
		looked := l.looked
		l.mu.Unlock()
		select {
		case <-looked:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", core.ErrUnavailable, context.Cause(ctx))
		}
		l.mu.Lock()
		if l.asked && !anyway {
			l.mu.Unlock()
			return nil
		}
	}
	l.looks, l.looked = true, make(chan struct{})
	l.mu.Unlock()
	err := s.askLives(ctx)
	if err == nil && s.fault() == nil {
		s.vouch(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks, l.asked, l.next = false, true, time.Now().Add(lookEvery)
	close(l.looked)
	return err
}

// askLives asks all servers at once.
func (s *Store) askLives(ctx context.Context) error {
	return s.everyNode(ctx, func(ctx context.Context, n *node) error {
		if n.server == nil {
			return nil
		}
		start := time.Now()
		info, err := n.server.Node(ctx)
		if errors.Is(err, core.ErrUnsupported) {
			return nil
		}
		if err == nil {
			s.note(n.index, start, info)
		}
		s.report(ctx, n, start, err)
		return err
	})
}

// everyNode calls fn for each node and waits for all of them, for as long as a
// look may take.
func (s *Store) everyNode(ctx context.Context, fn func(ctx context.Context, n *node) error) error {
	answers := make(chan error, len(s.nodes))
	for _, n := range s.nodes {
		s.call(ctx, n, s.lookTime(), func(ctx context.Context) error { return fn(ctx, n) }, func(err error) { answers <- err })
	}
	timer := time.NewTimer(s.lookTime() * 5 / 4)
	defer timer.Stop()
	var first error
	for range s.nodes {
		select {
		case err := <-answers:
			if first == nil && err != nil {
				first = err
			}
		case <-timer.C:
			return fmt.Errorf("%w: %w", core.ErrUnavailable, errNodeTimeout)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", core.ErrUnavailable, context.Cause(ctx))
		}
	}
	return first
}

// vouch lets all servers vote if they are all young, and all take the mark of
// these lives.
func (s *Store) vouch(ctx context.Context) {
	s.lives.mu.Lock()
	ids, barred := make([]string, len(s.nodes)), false
	for i := range s.lives.known {
		l := &s.lives.known[i]
		if l.at.IsZero() || s.youth(l) <= 0 {
			s.lives.mu.Unlock()
			return
		}
		ids[i] = l.info.ID
		barred = barred || l.vouched != l.info.ID
	}
	s.lives.mu.Unlock()
	if !barred {
		return
	}
	sorted := slices.Sorted(slices.Values(ids))
	sum := sha256.Sum256([]byte(strings.Join(sorted, " ")))
	name := hex.EncodeToString(sum[:16])
	mark := core.Claim{Key: markKey, Owner: name, Lease: name, Weight: core.All, Limit: core.All, TTL: 2*s.quarantine + time.Second}
	var mu sync.Mutex
	var taken []*node
	err := s.everyNode(ctx, func(ctx context.Context, n *node) error {
		_, err := n.store.Acquire(ctx, mark)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			taken = append(taken, n)
		}
		return err
	})
	if errors.Is(err, core.ErrBusy) {
		// They have been in use, so this mark is wrong; without it, a later look
		// is not misled where the others have forgotten theirs.
		mu.Lock()
		defer mu.Unlock()
		brief := mark
		brief.TTL = 0
		for _, n := range taken {
			s.call(ctx, n, s.timeout, func(ctx context.Context) error { return n.store.Release(ctx, brief) }, func(error) {})
		}
		return
	}
	if err != nil {
		return
	}
	s.lives.mu.Lock()
	defer s.lives.mu.Unlock()
	for i, id := range ids {
		s.lives.known[i].vouched = id
	}
}
