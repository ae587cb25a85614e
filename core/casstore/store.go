package casstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/keyed"
	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

// callLimit bounds an operation, and each call to the Place.
const callLimit = 2 * time.Second

// pauses are the pauses between Saves that have lost, after the first one.
var pauses = retry.Policy{Initial: 2 * time.Millisecond, Max: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.5}

// Store keeps locks in a Place. It implements store.Store for every kind of claim, and
// store.Checker and store.Prompt. It implements store.Watcher, store.Inspector and
// store.Cards as far as the Place allows, and fails with store.ErrUnsupported beyond
// that.
//
// A Store is safe for concurrent use. A call returns soon after its ctx is done, or
// after two seconds. A call to the Place that has begun by then goes on, for at most two
// seconds.
type Store struct {
	place Place
	name  string

	usual   Usual // nil, like the next ones, if place is none
	pooled  Pooled
	watcher Watcher
	lister  Lister
	checker store.Checker

	turns   keyed.Mutexes[string] // by key: the calls of this process do not lose against each other
	refused refused
	gate    outage.Gate
	sweeper sweeper
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
	_ store.Checker   = (*Store)(nil)
	_ store.Prompt    = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Cards     = (*Store)(nil)
)

// Option configures a Store.
type Option func(*Store)

// WithName sets the name with which errors begin. The default is "casstore".
func WithName(name string) Option { return func(s *Store) { s.name = name } }

// New returns a Store in p. It sends nothing. If p is also a Usual, Pooled, Prober,
// Watcher, Lister, Sweeper or store.Checker, the Store uses it as that. A store.Checker
// refuses claims beyond those that every store refuses.
//
// New fails with store.ErrInvalid if p or an option is nil, or a name is empty.
func New(p Place, opts ...Option) (*Store, error) {
	s := &Store{place: p, name: "casstore"}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("casstore: new: option is nil: %w", store.ErrInvalid)
		}
		o(s)
	}
	if p == nil || s.name == "" {
		return nil, fmt.Errorf("casstore: new: a place and a name are needed: %w", store.ErrInvalid)
	}
	s.usual, _ = p.(Usual)
	s.pooled, _ = p.(Pooled)
	s.watcher, _ = p.(Watcher)
	s.lister, _ = p.(Lister)
	s.checker, _ = p.(store.Checker)
	s.sweeper.place, _ = p.(Sweeper)
	probe := s.probe
	if p, ok := p.(Prober); ok {
		probe = p.Probe
	}
	s.gate.Watch(callLimit, probe)
	return s, nil
}

// Limit implements store.Prompt. It returns two seconds.
func (s *Store) Limit() time.Duration { return callLimit }

// Close ends the background work of the Store, and waits for its call in flight. Claims
// can still be made, extended and released.
func (s *Store) Close() error {
	s.gate.Close()
	s.sweeper.close()
	return nil
}

// CheckClaim implements store.Checker.
func (s *Store) CheckClaim(c store.Claim) error { return s.check("acquire", &c) }

func (s *Store) check(op string, c *store.Claim) error {
	if err := claims.Check(s.name, op, c, false); err != nil {
		return err
	}
	if s.checker != nil && op != "watch" {
		return s.checker.CheckClaim(*c)
	}
	return nil
}

// Watch implements store.Watcher. It returns the watch of the Place. It fails with
// store.ErrUnsupported if the Place is no Watcher.
func (s *Store) Watch(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
	const op = "watch"
	if s.watcher == nil {
		return nil, s.unsupported(op)
	}
	if err := s.check(op, &c); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, s.unchanged(op, context.Cause(ctx))
	}
	woken, err := s.watcher.Watch(ctx, c.Key, c.Lease)
	if err != nil {
		return nil, s.unchanged(op, err)
	}
	return woken, nil
}

// refused are the leases of this process that were refused as busy. Their next Acquire
// begins with a Load: an attempt to write is the most expensive way to learn that a key
// is busy. Whether they have a place in the line makes no difference. A lease that does
// not come again is forgotten.
type refused struct {
	mu     sync.Mutex
	until  map[string]time.Time // by lease, on the clock of this process
	tidyAt int                  // the number of leases at which the expired ones are removed
}

func (p *refused) add(lease string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if len(p.until) >= p.tidyAt {
		for other, until := range p.until {
			if !until.After(now) {
				delete(p.until, other)
			}
		}
		p.tidyAt = max(64, 2*len(p.until))
	}
	if p.until == nil {
		p.until = make(map[string]time.Time)
	}
	p.until[lease] = now.Add(store.WaiterLife)
}

// remove forgets lease, and reports whether it was there.
func (p *refused) remove(lease string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, there := p.until[lease]
	delete(p.until, lease)
	return there
}

// failed returns the error for an answer of the rule.
func (s *Store) failed(op string, err error) error {
	if err == nil || errors.As(err, new(*store.BusyError)) {
		return err
	}
	return fmt.Errorf("%s: %s: %w", s.name, op, err)
}
