package redlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/fresh"
	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

// Store stores locks on a majority of several independent stores, its nodes. It
// implements store.Store, store.Watcher, store.Checker, store.Inspector, store.Prompt
// and store.Braced. It is safe for concurrent use. Every call returns soon after its ctx
// is done. Acquire, Extend, Release, Watch and Look also return within Limit.
type Store struct {
	config
	nodes      []*node
	quorum     int
	requests   *requestLog
	membership membership
	cleanup    cleanup

	ctx    context.Context // canceled by Close
	cancel context.CancelFunc
	mu     sync.Mutex
	closed bool
	active int           // the number of workers
	idle   chan struct{} // closed when the last worker returns after Close
	work   chan func()   // for idle workers
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Prompt  = (*Store)(nil)
	_ store.Braced  = (*Store)(nil)

	_ store.Inspector = (*Store)(nil)
)

// New returns a Store on at least three nodes. Each node must be on a server that
// shares nothing with the others. The caller closes the nodes after the Store.
//
// A majority of all given nodes has to agree, even if some of them are down. So three
// nodes tolerate the loss of one, and five the loss of two. An even number tolerates no
// more losses than the odd number below it. Every process must be given the same nodes.
// The nodes should be in the same order everywhere, because a split vote goes to the
// claim with the first node.
//
// New sends nothing. It fails with store.ErrInvalid for fewer than three nodes, for a
// nil or repeated node, and for invalid options. If the nodes report one server for two
// of them, or a replica, Check and every Acquire fail.
func New(stores []store.Store, opts ...Option) (*Store, error) {
	s := &Store{config: config{timeout: defaultTimeout, drift: defaultDrift, quarantine: defaultQuarantine}}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("redlock: new: option is nil: %w", store.ErrInvalid)
		}
		o(&s.config)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if len(stores) < 3 {
		return nil, fmt.Errorf("redlock: new: %d nodes are too few (at least 3): %w", len(stores), store.ErrInvalid)
	}
	for i, st := range stores {
		if v := reflect.ValueOf(st); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, fmt.Errorf("redlock: new: node %d is nil: %w", i, store.ErrInvalid)
		}
		for j, other := range stores[:i] {
			if reflect.TypeOf(st).Comparable() && st == other {
				return nil, fmt.Errorf("redlock: new: nodes %d and %d are the same: %w", j, i, store.ErrInvalid)
			}
		}
		n := &node{store: st, index: i, room: make(chan struct{}, nodeWidth), silence: newSilence(s.timeout)}
		n.server, _ = st.(store.Node)
		s.nodes = append(s.nodes, n)
	}
	s.quorum = len(stores)/2 + 1
	s.requests = newRequestLog(len(stores))
	s.membership.store, s.membership.servers = s, make([]server, len(stores))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.cleanup.store, s.cleanup.resume = s, make([]time.Time, len(stores))
	s.work = make(chan func())
	return s, nil
}

// Limit implements store.Prompt. It returns 2 seconds, or ten node time-outs if these
// are longer. With the default node time-out, a split vote and the releases after a
// refusal take less than 2 seconds.
func (s *Store) Limit() time.Duration { return max(callLimit, 10*s.timeout) }

const callLimit = 2 * time.Second

// question returns a context for a call. The context is done when ctx is done, after
// Limit, or after valid. valid is the longest validity of an answer.
func (s *Store) question(ctx context.Context, valid time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, min(valid, s.Limit()), errTimeout)
}

// Check asks every node for the identity of its server. It does not check nodes that
// cannot describe their server. It returns nil if all servers have answered, are
// different and may vote, and none is a replica. The error matches store.ErrInvalid if
// two nodes are on the same server or one is on a replica. The error matches
// store.ErrUnavailable if a node does not answer or its vote does not count yet.
func (s *Store) Check(ctx context.Context) error {
	if err := s.membership.look(fresh.With(ctx), true); err != nil {
		return fmt.Errorf("redlock: check: %w", err)
	}
	if err := s.membership.fault(); err != nil {
		return fmt.Errorf("redlock: check: %w", err)
	}
	for i := range s.nodes {
		if err := s.membership.quarantine(i); err != nil {
			return fmt.Errorf("redlock: check: node %d: %w", i, err)
		}
	}
	return nil
}

// CheckClaim implements store.Checker. It accepts a claim if a majority can decide it
// and no node that is a store.Checker refuses it.
func (s *Store) CheckClaim(c store.Claim) error {
	if err := s.usable("acquire", &c); err != nil {
		return err
	}
	for _, n := range s.nodes {
		if k, ok := n.store.(store.Checker); ok {
			if err := k.CheckClaim(c); err != nil {
				return fmt.Errorf("redlock: node %d: %w", n.index, err)
			}
		}
	}
	return nil
}

// Braces implements store.Braced. It reports whether all nodes accept keys with braces.
func (s *Store) Braces() bool {
	for _, n := range s.nodes {
		if b, ok := n.store.(store.Braced); !ok || !b.Braces() {
			return false
		}
	}
	return true
}

// Close stops all background work and waits for its end. It waits for at most Limit for
// a call to a node that does not answer. While a lock with a token is being restored,
// several such calls can follow each other. If the release of a claim is still retried in
// the background, the claim expires with its TTL. The channels of watches are closed.
// Close does not close the nodes. Claims can still be extended and released.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	if s.active > 0 && s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	s.cancel()
	if idle != nil {
		<-idle
	}
	return nil
}

// run calls fn in a worker, and Close waits for the worker. An idle worker waits for
// more work for workerIdle, because waking a worker costs less than starting a
// goroutine.
func (s *Store) run(fn func()) {
	select {
	case s.work <- fn:
		return
	default:
	}
	s.mu.Lock()
	s.active++
	s.mu.Unlock()
	go s.worker(fn)
}

const workerIdle = time.Second

func (s *Store) worker(fn func()) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.active--; s.active == 0 && s.idle != nil {
			close(s.idle)
			s.idle = nil
		}
	}()
	idle := time.NewTimer(workerIdle)
	defer idle.Stop()
	for s.ctx.Err() == nil {
		fn()
		idle.Reset(workerIdle)
		select {
		case fn = <-s.work:
		case <-idle.C:
			return
		case <-s.ctx.Done():
			return
		}
	}
	fn()
}

// lookTime returns the interval at which awaitLook checks whether a majority may vote.
// It is at least 250 ms, because the first check often dials the servers.
func (s *Store) lookTime() time.Duration { return max(s.timeout, 250*time.Millisecond) }

// usable returns an error for a claim that a majority cannot decide, or whose TTL or
// MinToken is not allowed. Of a release it checks only that there is no record.
func (s *Store) usable(op string, c *store.Claim) error {
	var fault string
	switch {
	case c.Record != nil:
		fault = "records are not supported on a quorum"
	case op == "release":
		return nil
	case c.Fair:
		fault = "Fair is not supported on a quorum"
	case c.Limit != store.All && c.Weight != c.Limit, c.Limit > 1 && c.Limit < store.All,
		c.Weight > 1 && c.Weight < store.All:
		fault = "permits are not supported on a quorum"
	case c.MinToken > 0 && (!s.fencing || c.Weight < store.All):
		fault = "MinToken is for exclusive claims with WithFencing"
	}
	if fault != "" {
		return fmt.Errorf("redlock: %s: %s: %w", op, fault, store.ErrUnsupported)
	}
	if c.MinToken > maxToken {
		return fmt.Errorf("redlock: %s: MinToken is out of range (at most 2^51, so that tokens stay below 2^53): %w", op, store.ErrInvalid)
	}
	return s.checkTTL(op, c)
}

// checkTTL returns an error for a TTL that is not longer than the allowance for drift.
// If a node can describe its server, checkTTL also returns an error for a TTL above the
// quarantine, unless the quarantine is 0.
func (s *Store) checkTTL(op string, c *store.Claim) error {
	if s.valid(c.TTL) <= 0 {
		return fmt.Errorf("redlock: %s: TTL %s is too short for the drift: %w", op, words.Duration(c.TTL), store.ErrInvalid)
	}
	if s.quarantine > 0 && c.TTL > s.quarantine && s.membership.known() {
		return fmt.Errorf("redlock: %s: TTL %s exceeds the quarantine of %s, see WithQuarantine: %w",
			op, words.Duration(c.TTL), words.Duration(s.quarantine), store.ErrInvalid)
	}
	return nil
}

var errTimeout = errors.New("the nodes did not answer in time")
