package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/leaseid"
	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

// engine is the part of a Locker that all its leases share.
type engine struct {
	keeper
	waiters waiters
	roster  roster
	process string // the first 8 characters of the lease IDs of the Locker
}

// terms are the options of an acquire that its lease needs afterwards.
type terms struct {
	noRenew bool
	usual   bool // exclusive, of one key, extended, and neither fair nor with KeepFor
	mode    Mode
	maxHold time.Duration // 0: no limit
	keep    time.Duration
	record  *store.Record // the record of a run, set by Begin
}

// Lease is a lock that is held until it is released or lost. The methods of a Lease are
// safe for concurrent use.
type Lease struct { // Lease fills a size class of the allocator, see TestMemory
	engine *engine
	key    string
	name   string
	opts   terms
	outer  *Lease       // the innermost lease in the context of the acquire
	since  clock.Moment // the start of the first granted call, or the time of take
	run    *run         // set for a lease of Begin

	listing listing // see roster.go; guarded by the roster's mutex

	// Written by the acquire, before the lease is handed to its caller.
	unsure map[string]bool // keys with an attempt of unknown outcome

	released sync.WaitGroup // done when Release has its result
	err      error          // the result of Release, read after released is done

	ctx        leaseContext
	endContext context.CancelCauseFunc // cancels ctx at its first call; nil: context.Canceled

	mu           order.Mutex[leaseRank]
	state        state
	begun        bool // start has succeeded and the run was not withdrawn: the work may have begun
	overrun      bool
	releasing    bool
	notifying    uint8 // notifications in flight, and 1 for the acquire until announce is done
	contended    bool  // see Event; contended and reentered do not change after the acquire
	reentered    bool
	tokenOffset  uint8  // the lease's token is the grant's token plus tokenOffset
	postponedEnd func() // the postponed notification of the lease's end
	holds        []*hold

	// first and one save allocations for a lease with one key. first is the hold, and
	// one is the array of the slice holds.
	first hold
	one   [1]*hold
}

type state uint8

const (
	held state = iota
	lost
	gone // released
)

func newLease(e *engine, ctx context.Context, key, name string, t terms) *Lease {
	lease := &Lease{engine: e, key: key, name: name, opts: t, notifying: 1, first: hold{id: leaseid.New(e.process)}}
	lease.released.Add(1)
	lease.outer, _ = LeaseFromContext(ctx)
	inner, end := context.WithCancelCause(ctx)
	lease.ctx, lease.endContext = leaseContext{inner, lease}, end
	return lease
}

// Key returns the key of the acquire, without the keys of Also.
func (l *Lease) Key() string { return l.key }

// tokenAt returns the lease's token for its hold h.
func (l *Lease) tokenAt(h *hold) uint64 {
	if h == nil || h.token == 0 {
		return 0
	}
	return h.token + uint64(l.tokenOffset)
}

// Token returns the fencing token of Key. The token is greater than the token of every
// earlier holder. A lease that re-entered has the token of the outer lease. Send the
// token with every write to a resource that refuses older tokens. Token returns 0 for
// shared leases and permits, and if the store cannot fence.
func (l *Lease) Token() uint64 { return l.tokenAt(l.hold(l.key)) }

// TokenOf returns the fencing token of key. It returns 0 if key is not a key of the
// lease.
func (l *Lease) TokenOf(key string) uint64 { return l.tokenAt(l.hold(key)) }

// Deadline returns the time until which this process may rely on the lease without
// another answer of the store. An extension moves the deadline, unless the lease
// already lasts longer. The deadline of a released or lost lease is in the past.
func (l *Lease) Deadline() time.Time {
	wall := time.Now() // read first: a pause after this line makes the deadline earlier
	now := l.engine.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	left := maxTTL
	for _, h := range l.holds {
		left = min(left, h.remaining(now))
	}
	if l.state != held {
		left = min(left, -1)
	}
	return wall.Add(left)
}

// Extend makes the lease last for ttl from now. The range of ttl is 100ms to 24 days.
// Extend does not shorten a lease that already lasts longer. The watchdog still extends
// the lease. If ttl is longer than the lease's TTL, up to a third of ttl can pass
// without an extension. A loss at the store is then noticed later.
//
// Extend fails with ErrLost if this process no longer holds the lease, and with
// ErrInvalid if ttl is out of range or ctx is nil. It fails with ErrUnavailable if the
// store did not confirm the extension. The lease is then trusted at least as long as
// before.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < minTTL || ttl > maxTTL {
		return fmt.Errorf("core: extend %q: TTL %s is out of range (%s to 24 days): %w", l.name, words.Duration(ttl), words.Duration(minTTL), ErrInvalid)
	}
	if ctx == nil {
		return fmt.Errorf("core: extend %q: ctx is nil: %w", l.name, ErrInvalid)
	}
	ttl -= ttl % time.Millisecond
	_, err := retry.Do(ctx, retry.Hiccup, func(ctx context.Context) (struct{}, error) {
		err := l.extend(ctx, ttl)
		if says(ctx, err, ErrLost) {
			err = retry.Stop(err)
		}
		return struct{}{}, err
	})
	switch {
	case err == nil:
		return nil
	case says(ctx, err, ErrLost) || !l.trusted(): // a loss cancels ctx if ctx is the lease's own
		return fmt.Errorf("core: extend %q: %w", l.name, ErrLost)
	}
	return unavailable("extend", l.name, err)
}

func (l *Lease) extend(ctx context.Context, ttl time.Duration) (err error) {
	if !l.trusted() {
		return ErrLost
	}
	// The store may have the holds until this time.
	end := l.engine.now().Time().Add(ttl + budget(ttl))
	l.mu.Lock()
	if l.state != held {
		l.mu.Unlock()
		return ErrLost // the hold may already belong to another lease
	}
	for _, h := range l.holds {
		h.noteExtend(end)
	}
	l.mu.Unlock()
	_, answers := l.engine.extendHolds(ctx, budget(ttl), ttl, l.holds)
	for _, x := range answers {
		switch {
		case says(ctx, x.Err, ErrLost):
			l.lose()
			err = ErrLost
		case err == nil:
			err = x.Err
		}
	}
	if err == nil && !l.trusted() {
		return ErrLost
	}
	return err
}

// notify notifies the observer of e, an event of a lease that is held. It does nothing
// if the lease is lost or is being released. The end of the lease must be the lease's
// last event.
func (l *Lease) notify(e Event) {
	if !l.engine.listens(e.Kind) {
		return
	}
	l.mu.Lock()
	open := l.state == held && !l.releasing && l.notifying < math.MaxUint8
	if open {
		l.notifying++
	}
	l.mu.Unlock()
	if open {
		l.engine.observe(context.WithoutCancel(l.ctx.Context), e)
		l.notified()
	}
}

// notified records that a notification is done. If no other notification is in flight,
// notified makes the postponed notification of the lease's end.
func (l *Lease) notified() {
	l.mu.Lock()
	l.notifying--
	end, last := l.postponedEnd, l.notifying == 0
	l.mu.Unlock()
	if last && end != nil {
		end()
	}
}

func (l *Lease) hold(key string) *hold {
	for _, h := range l.holds {
		if h.key == key {
			return h
		}
	}
	return nil
}

// grant adds the hold of g to the lease. g is the store's grant to c, in a call that
// began at start. grant schedules the hold's extension. Only the acquire of the lease
// calls grant. If an earlier hold of the lease is lost already, Lease.start fails
// later.
func (l *Lease) grant(c *store.Claim, g store.Grant, start clock.Moment) error {
	h := &l.first
	if len(l.holds) > 0 {
		h = &hold{id: c.Lease} // l.first keeps its ID, because other goroutines read it
	}
	if !h.grant(&l.engine.keeper, c, g, l, start) {
		return errors.New("the grant had expired when it arrived")
	}
	l.reentered = l.reentered || c.Via != "" && c.Via == g.Owner
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.holds) == 0 {
		l.holds, l.since = l.one[:0], h.from
	}
	l.holds = append(l.holds, h)
	if l.state == held {
		pause := h.toExtend
		if c.Push {
			pause = h.toLengthen
		}
		h.due(h.arrived, pause)
	}
	return nil
}

// take makes h, which was passed on to the acquire of the lease, the hold of the lease.
// It returns false if h is lost or no longer trusted.
func (l *Lease) take(h *hold) bool {
	now := l.engine.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	passes, trusted := h.giveTo(l, now)
	if trusted {
		l.holds = append(l.one[:0], h)
		l.since, l.tokenOffset = now, passes
	}
	return trusted
}

func (l *Lease) noteContended() { l.contended = true }

func (l *Lease) noteRun(found store.Record) { l.run = &run{found: found} }

// markUnsure records that an attempt on key may have been granted, or may still be
// granted.
func (l *Lease) markUnsure(key string) {
	if l.unsure == nil {
		l.unsure = make(map[string]bool)
	}
	l.unsure[key] = true
}

// start marks the lease as held by the caller. It fails if one of several keys is
// already lost, or if the Locker is closed.
func (l *Lease) start(now clock.Moment) error {
	if len(l.holds) > 1 && !l.trusted() {
		return fmt.Errorf("core: acquire %q: %w", l.name, ErrLost)
	}
	l.begun = true
	if !l.engine.roster.countHeld(l, now) {
		l.begun = false
		return fmt.Errorf("core: acquire %q: %w", l.name, ErrClosed)
	}
	return nil
}

// trusted reports whether this process may still rely on the lease. It reads the clock.
// If the lease is no longer trusted, it calls lose.
func (l *Lease) trusted() bool { return l.trustedAt(l.engine.now()) }

func (l *Lease) trustedAt(now clock.Moment) bool {
	l.mu.Lock()
	before := l.state
	trusted := before == held
	for _, h := range l.holds {
		trusted = trusted && h.remaining(now) > 0
	}
	l.mu.Unlock()
	if !trusted {
		l.lose()
	}
	return trusted
}

// lose ends the lease as lost, whatever the store may answer later. The lease's holds
// are then no longer extended. If Commit may have saved the run's record, lose does
// nothing. Only the store then knows whether the lease is held.
func (l *Lease) lose() {
	l.mu.Lock()
	before, holds := l.state, l.holds
	if before == held && l.isCommitted() {
		l.mu.Unlock()
		return
	}
	if before == held {
		l.state = lost
		for _, h := range holds {
			h.retire()
		}
	}
	l.mu.Unlock()
	// The context must be done when lose returns. Another goroutine may have changed
	// the state and not yet canceled the context.
	if before == gone {
		l.endContext(nil)
	} else {
		l.endContext(ErrLost)
	}
	if before != held {
		return
	}
	for _, h := range holds {
		l.engine.waiters.holdEnded(h)
	}
	l.notifyEnd(context.WithoutCancel(l.ctx.Context), Lost, l.engine.now().Since(l.since), ErrLost)
}

// stop marks the lease as released if it is held.
func (l *Lease) stop() (before state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.state
	if before == held {
		l.state = gone
	}
	return before
}

// announce notifies the observer that the lease was acquired. If the lease is already
// lost or released, announce then notifies the observer of that end.
func (l *Lease) announce(ctx context.Context, wait time.Duration) {
	if l.engine.listens(Acquired) {
		e := l.outcome(Acquired)
		e.Wait = wait
		l.engine.observe(ctx, e)
	}
	l.notified()
}

// notifyEnd lists a lost lease as lost in the roster. It then notifies the observer of
// the lease's end, with an event of kind k. If other notifications of the lease are in
// flight, notifyEnd postpones these two steps until the last one is done.
func (l *Lease) notifyEnd(ctx context.Context, k Kind, held time.Duration, err error) {
	l.mu.Lock()
	last := l.notifying == 0
	if !last {
		l.postponedEnd = func() { l.notifyEnd(ctx, k, held, err) }
	}
	l.mu.Unlock()
	if !last {
		return
	}
	if k == Lost {
		l.engine.roster.countLost(l)
	}
	if l.engine.listens(k) {
		e := l.outcome(k)
		e.Held, e.Err = held, err
		l.engine.observe(ctx, e)
	}
}

// tooOld reports whether the lease has been held for its MaxHold.
func (l *Lease) tooOld(now clock.Moment) bool {
	return l.opts.maxHold > 0 && now.Since(l.since) >= l.opts.maxHold
}

// overruns reports whether the lease must no longer be extended, because of NoRenew or
// MaxHold. The first time that MaxHold is the reason, overruns notifies the observer.
func (l *Lease) overruns(now clock.Moment) bool {
	if l.opts.noRenew {
		return true
	}
	if !l.tooOld(now) {
		return false
	}
	l.mu.Lock()
	first := !l.overrun && l.state == held
	l.overrun = true
	l.mu.Unlock()
	if first {
		e := l.event(Overrun)
		e.Held = now.Since(l.since)
		l.notify(e)
	}
	return true
}

// extends implements notices.
func (l *Lease) extends(now clock.Moment) bool {
	if !l.trustedAt(now) {
		// The lease is no longer held. If its release is in flight, the hold may be
		// passed on to the next lease. Until the release decides, the hold has to be
		// extended.
		return l.isReleased()
	}
	return !l.overruns(now)
}

// extended notifies the observer of the result of an extension.
func (l *Lease) extended(err error) {
	e := l.event(Extended)
	if err != nil {
		e.Kind, e.Err = ExtendFailed, err
	}
	l.notify(e)
}

func (l *Lease) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == gone || l.releasing
}

func (l *Lease) event(k Kind) Event {
	return Event{Kind: k, Name: l.name, Mode: l.opts.mode, of: l}
}

// outcome returns an event of the lease's acquire or of the lease's end, with Contended
// and Reentered.
func (l *Lease) outcome(k Kind) Event {
	e := l.event(k)
	e.Contended, e.Reentered = l.contended, l.reentered
	return e
}

func (l *Lease) about() (key, hold string) { return l.key, l.ID() }

// ID returns the ID of the lease's hold for logs and operators. The ID does not reveal
// the key, the owner or the token. All holds of a lease over several keys have one ID.
// A hold that is passed on keeps its ID. So all leases that had the hold have the same
// ID.
//
// ID returns store.HoldID of the lease ID at the store. A lease ID has 34 random
// characters. The first 8 characters are the same for all leases of a Locker. They are
// not a secret, and store.ProcessOf returns them. The whole lease ID is a secret,
// because it usually is the owner at the store.
func (l *Lease) ID() string {
	l.mu.Lock()
	id := l.first.id
	if len(l.holds) > 0 {
		id = l.holds[0].id
	}
	l.mu.Unlock()
	return store.HoldID(id)
}
