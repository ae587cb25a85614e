package casstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/calls"
	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/keyed"
	"github.com/lockkit/lockkit/core/internal/outage"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

// callLimit is the maximum time of an operation, and of each call to the Place.
const callLimit = 2 * time.Second

// pauses determines the pauses before a repeated Load. A Load is repeated after a Save
// that returned false, or after ErrConflict. The first repetition has no pause.
var pauses = retry.Policy{Initial: 2 * time.Millisecond, Max: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.5}

// Store stores locks in a Place. It implements store.Checker and store.Prompt, and
// store.Store for every kind of claim that the Place does not refuse. It implements
// store.Watcher, store.Inspector and store.Cards if the Place supports them. Otherwise
// their methods fail with store.ErrUnsupported.
//
// A Store is safe for concurrent use. A call returns soon after its ctx is done, or
// after two seconds. Cards and Watch can take longer. Cards calls the Place for each
// process, and only the Place limits a Watch. A call to the Place that has begun by
// then continues for at most two seconds.
type Store struct {
	place Place
	name  string

	usual   Usual // each of these five fields is nil if place does not implement its type
	pooled  Pooled
	watcher Watcher
	lister  Lister
	checker store.Checker

	turns   keyed.Mutexes[string] // by key, so that calls of this process do not conflict
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

// WithName sets the name at the beginning of errors. The default is "casstore".
func WithName(name string) Option { return func(s *Store) { s.name = name } }

// New returns a Store that stores its locks in p. It sends nothing. If p is also a
// Usual, Pooled, Prober, Watcher, Lister, Sweeper or store.Checker, the Store uses that
// interface. As a store.Checker, p can refuse claims that other stores accept.
//
// New fails with store.ErrInvalid if p or an option is nil, or the name is empty.
func New(p Place, opts ...Option) (*Store, error) {
	s := &Store{place: p, name: "casstore"}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("casstore: new: option is nil: %w", store.ErrInvalid)
		}
		o(s)
	}
	if p == nil || s.name == "" {
		return nil, fmt.Errorf("casstore: new: place or name is missing: %w", store.ErrInvalid)
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
	var asking atomic.Int64 // probes that have not returned
	s.gate.Watch(callLimit, func(ctx context.Context) error {
		if asking.Add(1) > maxProbes {
			asking.Add(-1)
			return errProbes
		}
		_, _, err := calls.Detached(ctx, func() (struct{}, error) {
			defer asking.Add(-1)
			return struct{}{}, probe(ctx)
		})
		return err
	})
	return s, nil
}

// Limit implements store.Prompt. It returns two seconds.
func (s *Store) Limit() time.Duration { return callLimit }

// maxProbes is the maximum number of probes that ignore their context at a time.
const maxProbes = 8

var errProbes = errors.New("earlier probes have not returned")

// Close stops the background work of the Store, and waits until it has stopped. It does
// not wait for calls of the Place that do not return when their context is done. Claims
// can still be acquired, extended and released.
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
// store.ErrUnsupported if the Place is not a Watcher.
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

// refused contains the leases of this process that were refused as busy. The next
// Acquire or Release of such a lease begins with a Load, because a failed write is the
// most expensive way to find a key busy. The rule also applies to refused leases that
// are not in the queue. A lease that is neither acquired again nor released is removed
// later.
type refused struct {
	mu     sync.Mutex
	until  map[string]time.Time // by lease, by the clock of this process
	tidyAt int                  // the number of leases at which expired leases are removed
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

// remove forgets lease, and reports whether it was known.
func (p *refused) remove(lease string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, there := p.until[lease]
	delete(p.until, lease)
	return there
}

// failed returns err with the names of the Store and the operation. It returns nil and a
// BusyError unchanged.
func (s *Store) failed(op string, err error) error {
	if err == nil || errors.As(err, new(*store.BusyError)) {
		return err
	}
	return fmt.Errorf("%s: %s: %w", s.name, op, err)
}
