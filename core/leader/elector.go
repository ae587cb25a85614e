package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/keyed"
	"github.com/lockkit/lockkit/retry"
)

// soonest is the mean pause before a process that has resigned first checks whether
// another process leads.
const soonest = 50 * time.Millisecond

// errResigned is the cause with which Resign cancels the context of a term.
var errResigned = errors.New("leader: resigned")

// Elector takes part in an election. It is safe for concurrent use, and needs no Close.
type Elector struct {
	config
	locker *core.Locker
	key    string
	name   string // in messages
	ttl    time.Duration

	mu     sync.Mutex
	lease  *core.Lease // the lease of the current term, or nil
	resign context.CancelCauseFunc
}

// New returns an Elector for the election of key. All Electors with the same store and
// key take part in one election. New sends nothing to the store.
//
// New fails with core.ErrInvalid if l or an option is nil, or if an option is not
// allowed. It fails with core.ErrUnsupported if the store reports that it cannot give
// tokens. A store can lack tokens without such a report. In that case Run fails with
// core.ErrUnsupported.
func New(l *core.Locker, key string, opts ...Option) (*Elector, error) {
	if l == nil {
		return nil, fmt.Errorf("leader: new: locker is nil: %w", core.ErrInvalid)
	}
	e := &Elector{
		config: config{acquire: []core.AcquireOption{core.Fenced(), core.KeepFor(0)}, pause: defaultPause, onTerm: func(uint64, bool) {}},
		locker: l, key: key, name: "leader",
	}
	if _, err := adapter.Check(l, core.Name(key)); err == nil {
		e.name, e.acquire = key, append(e.acquire, core.Name(key))
	}
	for _, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("leader: new: an option is nil: %w", core.ErrInvalid)
		}
		o(&e.config)
	}
	if e.onTerm == nil {
		return nil, fmt.Errorf("leader: new: OnTerm is nil: %w", core.ErrInvalid)
	}
	if err := e.pause.Validate(); err != nil {
		return nil, fmt.Errorf("leader: new: Pause: %w: %w", err, core.ErrInvalid)
	}
	if _, err := adapter.Check(l, e.acquire...); err != nil {
		return nil, fmt.Errorf("leader: new: %w", err)
	}
	var err error
	e.ttl, _, err = adapter.Limits(l, e.acquire...)
	return e, err
}

// Run makes an Elector with New and calls Elector.Run. It fails with core.ErrInvalid if
// lead is nil, and with the errors of New and of Elector.Run.
func Run(ctx context.Context, l *core.Locker, key string, lead func(ctx context.Context) error, opts ...Option) error {
	if lead == nil {
		return fmt.Errorf("leader: lead: the work is nil: %w", core.ErrInvalid)
	}
	e, err := New(l, key, opts...)
	if err != nil {
		return err
	}
	return e.Run(ctx, lead)
}

// Run campaigns, leads and campaigns again until ctx is done or the work is done. It
// blocks until then. For each term it calls lead with the lease's context. The context
// is done with cause core.ErrLost when the lease is lost. The context is also done when
// ctx is done, when Locker.Close gives up waiting, and after Resign. lead must then
// return soon, because this process does not campaign until then. If lead is nil, a
// term has no work and lasts until its context is done.
//
//   - If lead returns nil during the term, the work is done, and Run returns nil.
//   - If lead returns an error during the term, Run releases the key and campaigns
//     again after a pause. Another process can lead during the pause.
//   - If the term ends before lead returns, Run ignores the result of lead and
//     campaigns again.
//   - If lead panics, the key is released, and Run panics.
//
// When ctx is done, Run fails with an error that matches ctx's cause and the error of
// lead. It fails with core.ErrClosed if the Locker is closed, and with
// core.ErrUnsupported if the store cannot give tokens. It fails with core.ErrInvalid
// for a key that is not allowed. It also fails with core.ErrInvalid if ctx carries a
// lease of the key, because a leader does not re-enter. Run does not return because the
// key is busy or the store does not answer. If another Run of this key and Locker is in
// progress, Run waits until the other Run neither leads nor campaigns.
func (e *Elector) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if _, ok := core.LeaseOf(ctx, e.key); ok {
		return fmt.Errorf("leader: lead %q: under a lease of the same key: %w", e.name, core.ErrInvalid)
	}
	if lead == nil {
		lead = func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}
	}
	// A campaign does not join an owner in ctx.
	campaign := core.ContextWithOwner(ctx, "")
	failed, refused := e.pause.Delays(), retry.LockWait.Delays()
	for {
		t := e.term(campaign, lead)
		if t.end != unelected {
			refused = retry.LockWait.Delays()
		}
		if t.end != failure || t.lasted > e.ttl {
			failed = e.pause.Delays()
		}
		pause, left := time.Duration(0), true
		switch {
		case ctx.Err() != nil && t.end != done:
			return e.ended(ctx, t.err)
		case t.end == done, t.end == final:
			return t.err
		case t.end == failure:
			pause, left = failed()
		case t.end == unelected:
			pause, _ = refused()
		case t.end == resigned:
			e.yield(ctx, t.free)
		}
		if !left {
			return t.err
		}
		if clock.Sleep(ctx, pause) != nil {
			return e.ended(ctx, t.err)
		}
	}
}

// end is the result of a campaign or of a term.
type end int

const (
	unelected end = iota // the acquire failed, but may succeed later
	final                // another campaign cannot succeed
	done                 // the work is done
	failure              // the work has failed
	resigned
	lost
)

type term struct {
	end    end
	err    error // the reason of the end, or the error of the work
	lasted time.Duration
	free   bool // the release of the key was confirmed
}

// terms restrict each election of a Locker to one campaign or term at a time. Otherwise
// another Elector of the process could be elected while the work of a lost term still
// runs.
var terms keyed.Mutexes[election]

type election struct {
	locker *core.Locker
	key    string
}

// term campaigns, and leads if it is elected. It returns after the work and the release
// of the key have returned.
func (e *Elector) term(ctx context.Context, lead func(ctx context.Context) error) term {
	self := election{e.locker, e.key}
	if err := terms.Lock(ctx, self); err != nil {
		return term{end: final}
	}
	defer terms.Unlock(self)
	under, resign := context.WithCancelCause(ctx)
	defer resign(nil)
	lease, err := e.locker.Acquire(under, e.key, e.acquire...)
	switch {
	case err == nil:
	case under.Err() != nil, errors.Is(err, core.ErrBusy), errors.Is(err, core.ErrUnavailable), errors.Is(err, core.ErrLost):
		return term{end: unelected, err: err}
	default:
		return term{end: final, err: err}
	}
	defer lease.Release(ctx) // for a panic of the work
	start := time.Now()
	err = e.lead(lease, resign, lead)
	t := term{end: done, err: err, lasted: time.Since(start)}
	if lease.Context().Err() != nil {
		t.end = endOf(context.Cause(lease.Context()))
	} else if err != nil {
		t.end = failure
	}
	released := lease.Release(ctx)
	if errors.Is(released, core.ErrLost) {
		t.end = lost
	}
	t.free = released == nil
	if t.end == final {
		t.err = fmt.Errorf("leader: lead %q: %w", e.name, core.ErrClosed)
	}
	return t
}

// endOf returns the result of a term whose context is done with cause.
func endOf(cause error) end {
	switch {
	case errors.Is(cause, errResigned):
		return resigned
	case errors.Is(cause, core.ErrClosed):
		return final
	}
	return lost
}

// lead calls work for a term, between the two calls of OnTerm.
func (e *Elector) lead(lease *core.Lease, resign context.CancelCauseFunc, work func(ctx context.Context) error) error {
	e.mu.Lock()
	e.lease, e.resign = lease, resign
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.lease, e.resign = nil, nil
		e.mu.Unlock()
		e.onTerm(lease.Token(), false)
	}()
	e.onTerm(lease.Token(), true)
	return work(lease.Context())
}

// IsLeader returns nil if this Elector leads. Otherwise it returns an error that
// matches core.ErrBusy. It relies on the clock of the lease and sends nothing to the
// store. If it finds that the lease is lost, it calls the observer. After the end of a
// term, the Elector does not lead, even if the work of the term still runs.
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	lease := e.lease
	e.mu.Unlock()
	if lease != nil && lease.Context().Err() == nil {
		return nil
	}
	return fmt.Errorf("leader: lead %q: another process may lead: %w", e.name, core.ErrBusy)
}

// Resign ends the term if this Elector leads. Then another process can lead. After the
// release of the key, this Elector does not campaign for a TTL. It campaigns earlier if
// it sees that another process leads. For this check, it tries to acquire the key as a
// reader, with the name leader-look. Resign returns at once, and does nothing if this
// Elector does not lead.
func (e *Elector) Resign() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.resign != nil {
		e.resign(errResigned)
	}
}

// yield waits for a TTL, or until another process leads. It checks often at first,
// because another process may lead soon and only for a short time. It does not check if
// the key may not be free, because it would find the hold of its own term.
func (e *Elector) yield(ctx context.Context, free bool) {
	end := time.Now().Add(e.ttl)
	next := retry.Policy{Initial: soonest, Max: max(e.ttl/10, soonest), Multiplier: 2, Jitter: 0.5}.Delays()
	for {
		pause, _ := next()
		pause = min(pause, time.Until(end))
		if clock.Sleep(ctx, pause) != nil || !time.Now().Before(end) || free && e.led(ctx) {
			return
		}
	}
}

// led reports whether another process leads. It tries to acquire the key as a reader,
// which fails with ErrBusy if the key is held. If the reader is admitted, led releases
// it at once, so that it hardly delays a campaign.
func (e *Elector) led(ctx context.Context) bool {
	lease, err := e.locker.TryAcquire(core.ContextWithOwner(ctx, ""), e.key,
		core.Shared(), core.NoRenew(), core.TTL(time.Second), core.KeepFor(0), core.Name("leader-look"))
	if err == nil {
		_ = lease.Release(ctx)
	}
	return errors.Is(err, core.ErrBusy) && ctx.Err() == nil
}

// ended returns the error of a Run whose ctx is done. last is the error of the last
// term or campaign, or nil.
func (e *Elector) ended(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	err := fmt.Errorf("leader: lead %q: %w", e.name, cause)
	if cause != ctx.Err() {
		err = fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	if last != nil && !errors.Is(last, cause) {
		err = fmt.Errorf("%w, after: %w", err, last)
	}
	return err
}
