package redlock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// Store keeps a lock on a majority of several independent stores, its nodes. It
// implements core.Store and core.Watcher and is safe for concurrent use. Every
// call returns soon after its ctx ends, and within Limit.
type Store struct {
	config
	nodes   []*node
	quorum  int
	ledger  *ledger
	lives   lives
	janitor janitor

	ctx    context.Context // of what goes on in the background
	cancel context.CancelFunc
	mu     sync.Mutex
	closed bool
	active int           // goroutines
	idle   chan struct{} // closed when the last one ends after Close
	work   chan func()   // for those that rest
}

var (
	_ core.Store   = (*Store)(nil)
	_ core.Watcher = (*Store)(nil)
	_ core.Prompt  = (*Store)(nil)
	_ core.Braced  = (*Store)(nil)
)

// New returns a Store on the given nodes, which stay the caller's: at least
// three, each on a server that shares nothing with the others. A majority of
// those given has to agree, whether they live or not, so three bear the loss of
// one and five that of two; an even number bears no more than one less. Every
// process has to be given the same nodes; their order should be the same too,
// since a split vote goes to whoever has the first node.
//
// It sends nothing. It fails with core.ErrInvalid for fewer than three nodes, for
// one that is nil or given twice, and for options that cannot work. That two are
// the same server, or one is a replica, shows when they are first used, or in Check.
func New(stores []core.Store, opts ...Option) (*Store, error) {
	s := &Store{config: config{timeout: defaultTimeout, drift: defaultDrift, quarantine: defaultQuarantine}}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("redlock: option is nil: %w", core.ErrInvalid)
		}
		o(&s.config)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	if len(stores) < 3 {
		return nil, fmt.Errorf("redlock: %d nodes bear no loss, at least 3 are needed: %w", len(stores), core.ErrInvalid)
	}
	for i, store := range stores {
		if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, fmt.Errorf("redlock: node %d is nil: %w", i, core.ErrInvalid)
		}
		for j, other := range stores[:i] {
			if reflect.TypeOf(store).Comparable() && store == other {
				return nil, fmt.Errorf("redlock: nodes %d and %d are the same: %w", j, i, core.ErrInvalid)
			}
		}
		n := &node{store: store, index: i, room: make(chan struct{}, nodeWidth)}
		n.server, _ = store.(core.Node)
		s.nodes = append(s.nodes, n)
	}
	s.quorum = len(stores)/2 + 1
	s.ledger = newLedger(len(stores))
	s.lives.known = make([]life, len(stores))
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.janitor.store = s
	s.work = make(chan func())
	return s, nil
}

// Limit implements core.Prompt: a look at the servers, two rounds, a split vote,
// and giving back.
func (s *Store) Limit() time.Duration { return 3*s.lookTime() + 12*s.timeout + 10*firstGrace }

// CheckClaim implements core.Checker: a claim is served if each node that tells
// serves it.
func (s *Store) CheckClaim(c core.Claim) error {
	if err := s.usable("acquire", &c); err != nil {
		return err
	}
	for _, n := range s.nodes {
		if k, ok := n.store.(core.Checker); ok {
			if err := k.CheckClaim(c); err != nil {
				return fmt.Errorf("redlock: node %d: %w", n.index, err)
			}
		}
	}
	return nil
}

// Braces implements core.Braced: keys may have braces if each node takes them.
func (s *Store) Braces() bool {
	for _, n := range s.nodes {
		if b, ok := n.store.(core.Braced); !ok || !b.Braces() {
			return false
		}
	}
	return true
}

// Close ends what goes on in the background, and waits for it: claims that are
// being given back are left to end with their TTL, and watches are closed. It
// does not close the nodes. Claims can still be extended and released.
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

// run calls fn in the background, which Close waits for. A goroutine that has done
// its work rests for a while: to wake one costs less than to grow another stack.
func (s *Store) run(fn func()) {
	select {
	case s.work <- fn:
		return
	default:
	}
	s.mu.Lock()
	s.active++
	s.mu.Unlock()
	go s.toil(fn)
}

// restFor is how long a goroutine waits for more to do.
const restFor = time.Second

func (s *Store) toil(fn func()) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.active--; s.active == 0 && s.idle != nil {
			close(s.idle)
			s.idle = nil
		}
	}()
	rest := time.NewTimer(restFor)
	defer rest.Stop()
	for s.ctx.Err() == nil {
		fn()
		rest.Reset(restFor)
		select {
		case fn = <-s.work:
		case <-rest.C:
			return
		case <-s.ctx.Done():
			return
		}
	}
	fn()
}

// usable refuses claims that a majority cannot decide.
func (s *Store) usable(op string, c *core.Claim) error {
	var fault string
	switch {
	case c.Record != nil:
		fault = "a record needs one place that has its last state"
	case op == "release":
		return nil
	case c.Fair:
		fault = "each node has an order of its own"
	case c.Limit != core.All && c.Weight != c.Limit, c.Limit > 1 && c.Limit < core.All,
		c.Weight > 1 && c.Weight < core.All:
		fault = "majorities keep two claims apart, they do not count permits"
	case c.MinToken > 0 && (!s.fencing || c.Weight < core.All):
		fault = "no token without WithFencing, and only for exclusive claims"
	}
	if fault != "" {
		return fmt.Errorf("redlock: %s: %s: %w", op, fault, core.ErrUnsupported)
	}
	if c.MinToken > maxToken {
		return fmt.Errorf("redlock: %s: a least token of at most 2^51 leaves room to grow below 2^53: %w", op, core.ErrInvalid)
	}
	return s.lasting(op, c)
}

// lasting refuses a TTL of which nothing would be left, or that outlasts the
// quarantine.
func (s *Store) lasting(op string, c *core.Claim) error {
	if s.valid(c.TTL) <= 0 {
		return fmt.Errorf("redlock: %s: nothing is left of a TTL of %v: %w", op, c.TTL, core.ErrInvalid)
	}
	if s.quarantine > 0 && c.TTL > s.quarantine && s.tellsAge() {
		return fmt.Errorf("redlock: %s: a TTL of %v outlasts the quarantine of %v, see WithQuarantine: %w",
			op, c.TTL, s.quarantine, core.ErrInvalid)
	}
	return nil
}

func (s *Store) tellsAge() bool {
	for _, n := range s.nodes {
		if n.server != nil {
			return true
		}
	}
	return false
}

var errTimeout = errors.New("the nodes did not answer in time")
