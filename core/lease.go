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
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

// engine is the part that the leases of a Locker share.
type engine struct {
	keeper
	waiters waiters
	roster  roster
	process string // the first letters of the IDs of its leases
}

// terms are the options of an acquire that its lease needs afterwards.
type terms struct {
	noRenew bool
	usual   bool // exclusive, of one key, extended, and neither fair nor with KeepFor
	mode    Mode
	maxHold time.Duration // 0: no limit
	keep    time.Duration
	record  *store.Record // of Begin
}

// Lease is a lock that is held until it is released or lost. Its methods are safe for
// concurrent use.
type Lease struct { // TestMemory logs its size: it fills a size class of the allocator
	engine *engine
	key    string
	name   string
	opts   terms
	outer  *Lease       // the innermost lease in the context of the acquire
	since  clock.Moment // of the first grant
	run    *run         // of a lease of Begin

	listing listing // of roster.go, under the roster's mutex

	// Written by the acquire, before the lease is handed to its caller.
	unsure map[string]bool // keys with an attempt of unknown outcome

	released sync.WaitGroup // done when Release has its answer
	err      error          // the answer of Release, read after released

	ctx        leaseContext
	endContext context.CancelCauseFunc // cancels ctx; nil stands for context.Canceled, and the first cause counts

	mu          order.Mutex[leaseRank]
	state       state
	begun       bool // start has succeeded and the run was not withdrawn: the work may have begun
	overrun     bool
	releasing   bool
	notifying   uint8 // notifications of its events in flight; until it is announced, the acquire is one
	contended   bool  // see Event; this and reentered do not change after the acquire
	reentered   bool
	tokenOffset uint8  // the lease's token is the grant's plus this
	unsaidEnd   func() // notifies the observer of the lease's end, when the notifications in flight are done
	holds       []*hold

	// The hold of a lease with one key, and the slice for holds, without allocations of
	// their own.
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

// Key returns the key of the acquire, without those of Also.
func (l *Lease) Key() string { return l.key }

// tokenAt returns the lease's token of its hold h, or 0 if h is nil.
func (l *Lease) tokenAt(h *hold) uint64 {
	if h == nil || h.token == 0 {
		return 0
	}
	return h.token + uint64(l.tokenOffset)
}

// Token returns the fencing token of Key. It is greater than that of every earlier
// holder, and the same for leases that re-entered. Send it with every write, to a
// resource that refuses older ones. It is 0 for shared leases and permits, and where
// the store cannot fence.
func (l *Lease) Token() uint64 { return l.tokenAt(l.hold(l.key)) }

// TokenOf returns the fencing token of one of the lease's keys, and 0 for any other
// key.
func (l *Lease) TokenOf(key string) uint64 { return l.tokenAt(l.hold(key)) }

// Deadline returns the time until which this process may rely on the lease if the store
// is not heard from again. It moves with each extension. It is in the past when the
// lease is released or lost.
func (l *Lease) Deadline() time.Time {
	wall := time.Now() // read first: the time that passes from here on makes the deadline earlier
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

// Extend makes the lease last for ttl from now, from 100ms to 24 days. It does not
// shorten a lease that already lasts longer. The watchdog goes on as before.
//
// It fails with ErrLost if this process no longer holds the lease, and with ErrInvalid
// if ttl is out of range or ctx is nil. It fails with ErrUnavailable if the store did
// not confirm; the lease is then as good as before.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < minTTL || ttl > maxTTL {
		return fmt.Errorf("extend %s: TTL is %v, %v to 24 days is allowed: %w", l.name, ttl, minTTL, ErrInvalid)
	}
	if ctx == nil {
		return fmt.Errorf("extend %s: ctx is nil: %w", l.name, ErrInvalid)
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
	case says(ctx, err, ErrLost):
		return fmt.Errorf("extend %s: %w", l.name, ErrLost)
	}
	return unavailable("extend", l.name, err)
}

func (l *Lease) extend(ctx context.Context, ttl time.Duration) (err error) {
	if !l.trusted() {
		return ErrLost
	}
	end := l.engine.now().Time().Add(ttl + budget(ttl)) // the store has the hold until then
	l.mu.Lock()
	if l.state != held {
		l.mu.Unlock()
		return ErrLost // the hold may be another lease's by now
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

// notify notifies the observer of e, an event of the lease while it was held. It does
// nothing when the lease is lost or is being released: its end is its last event.
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

// notified counts a notification out. It notifies the observer of the lease's end if
// that has waited for this notification.
func (l *Lease) notified() {
	l.mu.Lock()
	l.notifying--
	end, last := l.unsaidEnd, l.notifying == 0
	l.mu.Unlock()
	if last && end != nil {
		end()
	}
}

// hold returns the lease's hold of key, or nil.
func (l *Lease) hold(key string) *hold {
	for _, h := range l.holds {
		if h.key == key {
			return h
		}
	}
	return nil
}

// grant adds to the lease the hold that the store granted to c by a call that began at
// start, and has the watchdog extend it. Only the acquire of the lease calls it. An
// earlier hold of the lease may be lost by now: start reports that.
func (l *Lease) grant(c *store.Claim, g store.Grant, start clock.Moment) error {
	h := &l.first
	if len(l.holds) > 0 {
		h = &hold{id: c.Lease} // the first hold's ID does not change: other goroutines read it
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

// take takes h, a hold that was passed on to the acquire of the lease. It returns false
// if the hold is lost or no longer trusted.
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

// noteContended records that the key was not free for the lease's acquire.
func (l *Lease) noteContended() { l.contended = true }

// noteRun records the store's record of the lease's run.
func (l *Lease) noteRun(found store.Record) { l.run = &run{found: found} }

// markUnsure records that an attempt on key may have been granted, or may yet be.
func (l *Lease) markUnsure(key string) {
	if l.unsure == nil {
		l.unsure = make(map[string]bool)
	}
	l.unsure[key] = true
}

// start marks the lease as held by the caller. It fails if a key that was taken before
// the last one is lost by now, or if the Locker is closed.
func (l *Lease) start(now clock.Moment) error {
	if len(l.holds) > 1 && !l.trusted() {
		return fmt.Errorf("acquire %s: %w", l.name, ErrLost)
	}
	l.begun = true
	if !l.engine.roster.countHeld(l, now) {
		l.begun = false
		return fmt.Errorf("acquire %s: %w", l.name, ErrClosed)
	}
	return nil
}

// trusted reports whether this process may still rely on the lease. It reads the clock,
// and ends the lease as lost if it may not.
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

// lose ends the lease as lost, whatever the store may answer later. Its holds are not
// extended any more. A lease whose run may be committed is not lost; Finish finds out.
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
	// Another goroutine may have changed the state and not canceled the context yet.
	// The caller is about to rely on the context.
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
	l.tellEnd(context.WithoutCancel(l.ctx.Context), Lost, l.engine.now().Since(l.since), ErrLost)
}

// stop ends a lease that is held, and returns the state before.
func (l *Lease) stop() (before state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before = l.state
	if before == held {
		l.state = gone
	}
	return before
}

// announce notifies the observer that the lease was acquired, and of its end if the
// lease is lost or released already.
func (l *Lease) announce(ctx context.Context, wait time.Duration) {
	if l.engine.listens(Acquired) {
		e := l.outcome(Acquired)
		e.Wait = wait
		l.engine.observe(ctx, e)
	}
	l.notified()
}

// tellEnd lists the lease as lost if it is, and notifies the observer of its end. If
// notifications are in flight, it leaves both to the last of them.
func (l *Lease) tellEnd(ctx context.Context, k Kind, held time.Duration, err error) {
	l.mu.Lock()
	last := l.notifying == 0
	if !last {
		l.unsaidEnd = func() { l.tellEnd(ctx, k, held, err) }
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

// tooOld reports whether the lease was held for longer than its MaxHold.
func (l *Lease) tooOld(now clock.Moment) bool {
	return l.opts.maxHold > 0 && now.Since(l.since) >= l.opts.maxHold
}

// overruns reports whether the lease must not be extended any more.
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

// extends reports whether h, a hold of the lease, is to be extended.
func (l *Lease) extends(now clock.Moment) bool {
	if !l.trustedAt(now) {
		// The lease is not held any more. A release in flight may pass the hold on to
		// the next lease, so the hold must not expire until that is decided.
		return l.isReleased()
	}
	return !l.overruns(now)
}

// extended notifies the observer of the answer to an extension.
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

// event returns an event of the lease.
func (l *Lease) event(k Kind) Event {
	return Event{Kind: k, Name: l.name, Mode: l.opts.mode, of: l}
}

// outcome returns an event of the lease's acquire, or of one that comes after it.
func (l *Lease) outcome(k Kind) Event {
	e := l.event(k)
	e.Contended, e.Reentered = l.contended, l.reentered
	return e
}

func (l *Lease) about() (key, hold string) { return l.key, l.ID() }

// ID returns the name of the lease's hold for logs and operators. It reveals neither
// the key, the owner nor the token. A hold that is passed on keeps its ID, so leases
// that have it one after the other have the same ID. All holds of a lease over several
// keys have the same ID.
//
// It is store.HoldID of the lease ID at the store. Lease IDs have one form: 8 letters
// of the process, which each New makes anew, and 26 random ones. The 8 letters are no
// secret, and store.ProcessOf returns them. The whole lease ID is a secret, because it
// usually equals the Owner.
func (l *Lease) ID() string {
	l.mu.Lock()
	id := l.first.id
	if len(l.holds) > 0 {
		id = l.holds[0].id
	}
	l.mu.Unlock()
	return store.HoldID(id)
}
