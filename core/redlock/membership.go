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

	"github.com/lockkit/lockkit/core/internal/fresh"
	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

// membership decides by the identity and the age of servers which nodes may vote.
//
// A server that was restarted may have forgotten holds. Its votes do not count until
// every hold that it can have granted before the restart has expired.
//
// In a new cluster there are no holds to forget. The servers may vote at once if all of
// them are young and grant the mark. The mark is a claim whose owner is a digest of
// their IDs. A process that starts later finds the same IDs and the same owner. If a
// server was restarted in the meantime, its new ID leads to another owner. The other
// servers still have the mark of the first owner and refuse the second owner.
type membership struct {
	store *Store

	mu      sync.Mutex
	servers []server
	asked   bool      // the servers were asked at least once
	next    time.Time // the earliest time of the next check
	looking bool
	looked  chan struct{} // closed when the current check is done
}

// server is the state of the server behind a node.
type server struct {
	info     store.NodeInfo // its Age is the first one that was reported for its ID
	at       time.Time      // the arrival of info; zero for never
	asked    time.Time      // the start of the last call that returned the same server
	heard    bool           // the last check got an answer, with or without info
	mute     bool           // the last answer to a call was that the server is not described
	admitted string         // the ID of a server that may vote although it is young
	// changed is the last moment at which the node had another server, or a replica. It
	// is zero if there was none. The server's data can be as old as the time since then.
	// A greater age is not believed: the server's clock was wrong, or the server was a
	// replica of the other one.
	changed time.Time
}

// quarantined is the error for a restarted node that has no vote.
type quarantined struct{ left time.Duration }

func (e *quarantined) Error() string {
	return fmt.Sprintf("restarted, and trusted again in %s, see WithQuarantine", words.Duration(seconds(e.left)))
}

func (e *quarantined) Is(target error) bool { return target == store.ErrUnavailable }

func seconds(d time.Duration) time.Duration {
	return (max(d, 0) + time.Second - 1).Truncate(time.Second)
}

// lookPause is the pause between two checks of the servers while some may not vote.
const lookPause = 100 * time.Millisecond

const markKey = "lockkit.redlock.lives"

// ready checks the servers before the first claim. It fails if two nodes are known to be
// on the same server, or one node on a replica.
func (m *membership) ready(ctx context.Context) error {
	if !m.known() {
		return nil
	}
	m.mu.Lock()
	asked := m.asked
	m.mu.Unlock()
	if !asked {
		m.awaitLook(ctx)
	}
	err := m.fault()
	if err != nil {
		m.lookAgain(fresh.With(m.store.ctx)) // otherwise no store might ask its server again
	}
	return err
}

// awaitLook asks all servers and waits for their answers. It checks every lookTime
// whether a majority may vote. If so, it returns without the other answers. A server that
// has not answered yet is judged when it votes.
func (m *membership) awaitLook(ctx context.Context) {
	s := m.store
	looked := make(chan struct{})
	s.run(func() {
		_ = m.look(s.ctx, false)
		close(looked)
	})
	ticker := time.NewTicker(s.lookTime())
	defer ticker.Stop()
	for enough := false; !enough; enough = m.mayVote() >= s.quorum {
		select {
		case <-looked:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// mayVote returns the number of nodes that have answered the last check and may vote.
func (m *membership) mayVote() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.servers {
		if m.servers[i].heard && m.barred(i) == nil {
			n++
		}
	}
	return n
}

// known reports whether at least one node can describe its server.
func (m *membership) known() bool {
	for _, n := range m.store.nodes {
		if n.server != nil {
			return true
		}
	}
	return false
}

// fault returns an error if a known server is a replica or the server of two nodes. A
// replica that did not answer the last check is not a fault: like any node that is down,
// it has no vote.
func (m *membership) fault() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, a := range m.servers {
		if a.at.IsZero() {
			continue
		}
		if a.info.Replica && a.heard {
			return fmt.Errorf("node %d is a replica: %w", i, store.ErrInvalid)
		}
		for j, b := range m.servers[:i] {
			if !b.at.IsZero() && a.info.ID == b.info.ID {
				return fmt.Errorf("nodes %d and %d are the same server: %w", j, i, store.ErrInvalid)
			}
		}
	}
	return nil
}

// judge records the server of node i. It fails if the node's votes do not count.
func (m *membership) judge(i int, asked time.Time, info store.NodeInfo) error {
	if info.Replica {
		_ = m.note(i, asked, info)
		return fmt.Errorf("node %d is a replica: %w", i, store.ErrUnavailable)
	}
	if err := m.note(i, asked, info); err != nil {
		m.lookAgain(m.store.ctx)
		return err
	}
	return nil
}

// note records info, the answer to a call of node i that began at asked. It ignores the
// answer if a later call was answered first. For a known server it keeps the first age,
// because a later age can come from a clock that was set in the meantime. In all cases
// note returns the same as quarantine, at the same moment.
func (m *membership) note(i int, asked time.Time, info store.NodeInfo) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := &m.servers[i]; s.at.IsZero() || !asked.Before(s.asked) {
		promoted := s.info.Replica && !info.Replica
		if s.at.IsZero() || s.info.ID != info.ID || promoted {
			// s.asked is zero before the first description.
			s.info, s.at, s.admitted, s.changed = info, time.Now(), "", s.asked
		}
		s.info.Replica, s.asked, s.mute = info.Replica, asked, false
	}
	return m.barred(i)
}

// noteMute records that node i does not describe its server, because of err. It fails
// if the node has described a server before: this one may have been restarted since.
func (m *membership) noteMute(i int, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.servers[i]
	if !s.at.IsZero() && m.store.quarantine > 0 {
		return fmt.Errorf("%w: the server is no longer described: %v", store.ErrUnavailable, err)
	}
	s.mute = true
	return nil
}

// quarantine returns nil if node i may vote, and the reason otherwise.
func (m *membership) quarantine(i int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.barred(i)
}

// barred does the same as quarantine. The caller holds the mutex.
func (m *membership) barred(i int) error {
	s := &m.servers[i]
	if s.at.IsZero() || s.admitted == s.info.ID {
		return nil
	}
	age := s.age()
	if !s.changed.IsZero() {
		age = min(age, time.Since(s.changed))
	}
	if left := m.quarantineLeft(age); left > 0 {
		return &quarantined{left}
	}
	return nil
}

// age returns the age of the server by its own report.
func (s *server) age() time.Duration { return s.info.Age + time.Since(s.at) }

// quarantineLeft returns the time until a server of this age is old enough to vote.
func (m *membership) quarantineLeft(age time.Duration) time.Duration {
	longest := m.store.quarantine
	if longest <= 0 {
		return 0
	}
	// 2*longest - valid is longest plus the drift.
	return 2*longest - m.store.valid(longest) - age
}

// lastAsked returns the start of the call in which node i last described its server. If
// the node describes no server, described is false. err is the result of quarantine at
// the same moment.
func (m *membership) lastAsked(i int) (asked time.Time, described bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.servers[i]
	return s.asked, m.store.nodes[i].server != nil && !s.mute, m.barred(i)
}

// lookAgain starts a check of the servers in the background, with ctx. It does nothing
// during a check, and for lookPause after it.
func (m *membership) lookAgain(ctx context.Context) {
	m.mu.Lock()
	due := !m.looking && time.Now().After(m.next)
	m.mu.Unlock()
	if due && ctx.Err() == nil {
		m.store.run(func() { _ = m.look(ctx, true) })
	}
}

// look asks all servers, and admits the servers of a new cluster. Only one check runs at
// a time. If another caller has checked in the meantime, look returns without a check,
// unless anyway is set.
func (m *membership) look(ctx context.Context, anyway bool) error {
	m.mu.Lock()
	for m.looking {
		looked := m.looked
		m.mu.Unlock()
		select {
		case <-looked:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", store.ErrUnavailable, context.Cause(ctx))
		}
		m.mu.Lock()
		if m.asked && !anyway {
			m.mu.Unlock()
			return nil
		}
	}
	m.looking, m.looked = true, make(chan struct{})
	m.mu.Unlock()
	err := m.askAll(ctx)
	if err == nil && m.fault() == nil {
		m.admitNew(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looking, m.asked, m.next = false, true, time.Now().Add(lookPause)
	close(m.looked)
	return err
}

func (m *membership) askAll(ctx context.Context) error {
	return m.everyNode(ctx, func(ctx context.Context, n *node) (err error) {
		defer func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.servers[n.index].heard = err == nil
		}()
		if n.server == nil {
			return nil
		}
		start := time.Now()
		info, err := n.server.Node(ctx)
		if errors.Is(err, store.ErrUnsupported) {
			return m.noteMute(n.index, err)
		}
		if err == nil {
			_ = m.note(n.index, start, info)
		}
		if !fresh.Wanted(ctx) {
			start = time.Time{} // the server may not have been asked
		}
		m.store.report(ctx, n, start, err)
		return err
	})
}

// admitNew lets all servers vote if all are young and all grant the mark.
func (m *membership) admitNew(ctx context.Context) {
	s := m.store
	m.mu.Lock()
	ids, barred := make([]string, len(s.nodes)), false
	for i := range m.servers {
		server := &m.servers[i]
		// A server that has replaced another one counts with its own age here, because
		// an old cluster is not new.
		if server.at.IsZero() || m.quarantineLeft(server.age()) <= 0 {
			m.mu.Unlock()
			return
		}
		ids[i] = server.info.ID
		barred = barred || server.admitted != server.info.ID
	}
	m.mu.Unlock()
	if !barred {
		return
	}
	sorted := slices.Sorted(slices.Values(ids))
	sum := sha256.Sum256([]byte(strings.Join(sorted, " ")))
	name := hex.EncodeToString(sum[:16])
	mark := store.Claim{Key: markKey, Owner: name, Lease: name, Weight: store.All, Limit: store.All, TTL: 2*s.quarantine + time.Second}
	var mu sync.Mutex
	var taken []*node
	err := m.everyNode(ctx, func(ctx context.Context, n *node) error {
		_, err := n.store.Acquire(ctx, mark)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			taken = append(taken, n)
		}
		return err
	})
	if errors.Is(err, store.ErrBusy) {
		// The cluster is not new, so this mark is wrong and is removed. Otherwise a
		// later check could find only this mark, after the older mark is gone.
		mu.Lock()
		defer mu.Unlock()
		brief := mark
		brief.TTL = 0
		for _, n := range taken {
			s.call(ctx, n, func(ctx context.Context) error { return n.store.Release(ctx, brief) }, func(error) {})
		}
		return
	}
	if err != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, id := range ids {
		m.servers[i].admitted = id
	}
}

// everyNode calls fn for each node and returns the first error. It waits for all nodes
// until ctx is done or Limit has passed.
func (m *membership) everyNode(ctx context.Context, fn func(ctx context.Context, n *node) error) error {
	s := m.store
	answers := make(chan error, len(s.nodes))
	for _, n := range s.nodes {
		s.call(ctx, n, func(ctx context.Context) error { return fn(ctx, n) }, func(err error) { answers <- err })
	}
	ctx, cancel := s.question(ctx, s.Limit())
	defer cancel()
	var first error
	for range s.nodes {
		select {
		case err := <-answers:
			if first == nil && err != nil {
				first = err
			}
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", store.ErrUnavailable, context.Cause(ctx))
		}
	}
	return first
}
