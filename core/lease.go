package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/fifo"
	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/retry"
)

// Lease is a lock that is held, until it is released or lost. Its methods are
// safe for concurrent use.
type Lease struct {
	locker *Locker
	key    string
	name   string
	opts   terms
	outer  *Lease          // the innermost lease of the context it was acquired under
	under  context.Context // that it was acquired under
	since  clock.Moment    // of the first grant
	run    *run            // of a lease of Begin

	// Under the Locker's mutex.
	tally  *tally // that it is listed in, nil if in none,
	node   fifo.Node[Lease]
	listed clock.Moment // since when it is at its stage

	unsure   map[string]bool // keys of which an attempt's outcome is unknown
	released sync.WaitGroup  // done when Release has its answer
	err      error           // that answer

	mu        order.Mutex[leaseRank]
	ctx       leaseContext
	cancel    context.CancelCauseFunc // of ctx, nil as long as it need not be there
	cause     error                   // why it has ended, if that was before
	state     state
	running   bool // start was called and succeeded: there is a context to end
	overrun   bool
	releasing bool
	withdrawn bool // its run has not begun
	announced bool // the observer was told that it was acquired
	unheard   bool // it has ended before that
	contended bool // see Event; these two are the acquire's, and then do not change
	reentered bool
	shown     bool  // its owner was shown
	passed    bool  // its hold was passed on
	after     uint8 // how many tokens after the first one of its grant its own is
	stage     stage // under the Locker's mutex
	holds     []*hold

	// What nearly every lease needs, in one piece with it.
	first hold
	one   [1]*hold
}

type state uint8

const (
	held state = iota
	lost
	gone // released
)

func newLease(l *Locker, ctx context.Context, r *request) *Lease {
	lease := &Lease{locker: l, key: r.key, name: r.name, opts: r.terms, under: ctx}
	lease.first.id = l.newID()
	lease.released.Add(1)
	lease.outer, _ = LeaseFromContext(ctx)
	lease.ctx.lease = lease
	if ctx.Done() != nil {
		// ctx may change later: it must not be asked then.
		lease.ctx.Context, lease.cancel = context.WithCancelCause(ctx)
	}
	return lease
}

// Key is the key that was asked for, without those of Also.
func (l *Lease) Key() string { return l.key }

// Owner is opaque and unguessable. A caller that knows it can join this hold by
// ContextWithOwner, so it is a secret. It carries the lease's token, which a lease
// that joins then has too. If it is first asked for when the lease has ended, it may
// join nothing.
func (l *Lease) Owner() string { return joinOwner(l.show(l.hold(l.key))) }

// show tells the owner of a hold of the lease, and the lease's token. From now on other
// callers may join.
func (l *Lease) show(h *hold) (owner string, token uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = true
	if l.passed {
		return l.locker.newID(), 0 // the hold may be another lease's by now
	}
	return h.owner, l.tokenAt(h)
}

// tokenAt is the lease's token of a hold that it has, 0 if h is nil.
func (l *Lease) tokenAt(h *hold) uint64 {
	if h == nil || h.token == 0 {
		return 0
	}
	return h.token + uint64(l.after)
}

// Token is the fencing token of Key: greater than that of every earlier holder,
// and the same for leases that re-entered. Send it with every write, to a
// resource that refuses older ones. It is 0 for shared leases and permits, and
// where the store cannot fence.
func (l *Lease) Token() uint64 { return l.tokenAt(l.hold(l.key)) }

// TokenOf is the fencing token of one of the lease's keys, 0 for any other.
func (l *Lease) TokenOf(key string) uint64 { return l.tokenAt(l.hold(key)) }

// Deadline is until when this process trusts the lease, if nothing more is
// heard from the store. It moves with each extension, and is in the past when
// the lease has ended.
func (l *Lease) Deadline() time.Time {
	wall := time.Now() // first: what takes time from here on makes the deadline earlier
	now := l.locker.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var left time.Duration
	for i, h := range l.holds {
		if d := h.remaining(now); i == 0 || d < left {
			left = d
		}
	}
	if l.state != held {
		left = min(left, -1)
	}
	return wall.Add(left)
}

// Extend makes the lease last for ttl from now, 100ms to 24 days; a lease that
// lasts longer already is not shortened. The watchdog goes on as before.
//
// It fails with ErrLost if the lease is no longer ours, with ErrInvalid if ttl
// is out of range or ctx nil, and with ErrUnavailable if the store did not confirm, in
// which case the lease is as good as before.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < minTTL || ttl > maxTTL {
		return fmt.Errorf("extend %s: TTL is %v, %v to %v is allowed: %w", l.name, ttl, minTTL, maxTTL, ErrInvalid)
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
	ctx, cancel := context.WithTimeout(ctx, budget(ttl))
	defer cancel()
	end := l.locker.now().Time().Add(ttl + budget(ttl)) // the store has the hold until then
	l.mu.Lock()
	if l.state != held {
		l.mu.Unlock()
		return ErrLost // the hold may be another lease's by now
	}
	for _, h := range l.holds {
		h.reaches(end)
	}
	l.mu.Unlock()
	l.locker.extend(ctx, ttl, l.holds, func(_ *hold, _ clock.Moment, x Extension) {
		switch {
		case says(ctx, x.Err, ErrLost):
			l.lose()
			err = ErrLost
		case err == nil:
			err = x.Err
		}
	})
	if err == nil && !l.trusted() {
		return ErrLost
	}
	return err
}

// Release gives the lease back. It works on an ended ctx, and on a nil one, and is bounded by
// itself, at about 3 seconds if the store does not answer, or 6 if others of this
// process had the key next; the lease then counts as ended here, the store is told
// as soon as it answers, and the error matches ErrUnavailable. It is ErrLost if the
// lease was no longer ours. A second call gives the answer of the first.
func (l *Lease) Release(ctx context.Context) error {
	_, err := l.finish(ctx, "release", nil, false)
	return err
}

// finish is Release, and the first call of Finish if there is a record to save,
// or of Withdraw. It tells whether it was the one that ended the lease; the
// others have its answer.
func (l *Lease) finish(ctx context.Context, op string, r *Record, withdraw bool) (first bool, err error) {
	ctx = orBackground(ctx)
	l.mu.Lock()
	if l.releasing {
		l.mu.Unlock()
		l.released.Wait()
		return false, l.err
	}
	l.releasing, l.withdrawn = true, withdraw
	l.mu.Unlock()
	held, wasLost := l.conclude(op, r)
	switch {
	case !wasLost:
		l.tellEnd(ctx, Released, held, l.err)
	case r != nil && errors.Is(l.err, ErrLost): // that the lease was lost was told, and not that its answer is
		e := l.event(CleanedUp)
		e.Err = l.err
		l.locker.observe(ctx, e)
	}
	return true, l.err
}

// conclude ends the lease, here and at the store, and has all calls of finish
// know how that went, also if a call panics. It returns how long it was held, and
// whether it had been lost by then.
func (l *Lease) conclude(op string, r *Record) (held time.Duration, wasLost bool) {
	err := errNoEnd
	defer func() {
		l.err = l.endError(op, err)
		l.locker.end(l)
		l.released.Done()
	}()
	now := l.locker.now()
	l.trustedAt(now)
	wasLost = l.stop(gone) == lost
	if wasLost {
		l.end(ErrLost) // before it ends as released
	}
	l.end(nil)
	held = now.Since(l.since)
	if wasLost && r == nil {
		// The store may still have something of it, but no caller has to wait for that.
		l.abandon()
		err = ErrLost
	} else {
		err = l.giveUp(r, now.Time().Add(releaseLimit))
	}
	return held, wasLost
}

// endError is the error of a call that ends the lease, for the store's err.
func (l *Lease) endError(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLost):
		return fmt.Errorf("%s %s: %w", op, l.name, ErrLost)
	}
	return unavailable(op, l.name, err)
}

// giveUp passes the lease's hold on to a waiter of this process, or gives the lease
// back.
func (l *Lease) giveUp(r *Record, until time.Time) error {
	h := l.passable()
	if h == nil {
		return l.giveBack(r, until)
	}
	q := &l.locker.waiters
	passed, asks, rests := q.part(l, h)
	if passed {
		l.locker.observe(l.under, l.event(PassedOn)) // not by tell, which allocates: most leases of a busy key end here
		return h.confirmed(until)
	}
	if rests {
		defer q.vacate(h)
	}
	h.retire()
	if asks != nil {
		// It only keeps the order among processes, and the hold is not extended any
		// more and has to last until it is released.
		select {
		case <-asks:
		case <-time.After(min(askTime, h.remaining(l.locker.now())/4)):
		}
	}
	return l.giveBack(r, until)
}

// tell tells the observer of e, which happened to the lease.
func (l *Lease) tell(e Event) {
	if l.locker.listens(e.Kind) {
		l.locker.observe(context.WithoutCancel(l.under), e)
	}
}

// passable is the lease's hold if that can be passed on: the lease is a usual one,
// its only hold is its own and no other's that it joined, and all its calls to the
// store were answered.
func (l *Lease) passable() *hold {
	if !l.opts.usual || l.opts.record != nil || len(l.holds) != 1 || l.unsure[l.key] {
		return nil
	}
	if h := l.holds[0]; h.owner == h.id {
		return h
	}
	return nil
}

// giveBack releases at the store whatever this lease, which has ended, may have
// there, with the record of a run.
func (l *Lease) giveBack(r *Record, until time.Time) error {
	for _, h := range l.holds {
		h.retire()
	}
	var first error
	for _, h := range slices.Backward(l.holds) {
		c := l.leaving(h)
		c.Record = r
		err := h.release(c, l, l.unsure[h.key], until)
		if first == nil {
			first = err
		}
	}
	return first
}

// abandon is giveBack in the background.
func (l *Lease) abandon() {
	l.stop(gone)
	l.end(nil)
	for _, h := range l.holds {
		l.locker.waiters.vacate(h)
		h.abandon(l.leaving(h), l, l.unsure[h.key])
	}
}

// leaving is the claim that releases h. A run whose lease was not returned has not begun.
func (l *Lease) leaving(h *hold) Claim {
	c := h.leaving()
	if l.running && l.opts.keep > 0 {
		c.Keep = max(0, l.opts.keep-l.locker.now().Since(l.holds[len(l.holds)-1].arrived))
	}
	c.Undo = l.opts.record != nil && (!l.running || l.withdrawn)
	return c
}

// hold is the lease's part in key, nil if it has none.
func (l *Lease) hold(key string) *hold {
	for _, h := range l.holds {
		if h.key == key {
			return h
		}
	}
	return nil
}

// add makes a granted hold part of the lease and has the watchdog extend it. Only
// the acquire that makes the lease calls it. An earlier hold of the lease may have
// been lost meanwhile; then start will say so.
func (l *Lease) add(h *hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.holds) == 0 {
		l.holds, l.since = l.one[:0], h.from
	}
	l.holds = append(l.holds, h)
	if l.state == held {
		h.due(h.third)
	}
}

// doubt remembers that an attempt on key may have been granted, or may yet be.
func (l *Lease) doubt(key string) {
	if l.unsure == nil {
		l.unsure = make(map[string]bool)
	}
	l.unsure[key] = true
}

// start makes the lease one that the caller may have. Keys that were taken
// before the last one may have been lost meanwhile.
func (l *Lease) start(now clock.Moment) error {
	if len(l.holds) > 1 && !l.trusted() {
		return fmt.Errorf("acquire %s: %w", l.name, ErrLost)
	}
	l.running = true
	if !l.locker.keep(l, now) {
		l.running = false
		return fmt.Errorf("acquire %s: %w", l.name, ErrClosed)
	}
	return nil
}

// trusted tells whether this process still relies on the lease. It asks the
// clocks, and ends the lease if its time is over.
func (l *Lease) trusted() bool { return l.trustedAt(l.locker.now()) }

func (l *Lease) trustedAt(now clock.Moment) bool {
	l.mu.Lock()
	if l.state != held {
		over := l.state == lost
		l.mu.Unlock()
		if over {
			l.end(ErrLost) // the goroutine that found that out may not have come to it yet
		}
		return false
	}
	for _, h := range l.holds {
		if !h.trusted(now) {
			l.mu.Unlock()
			l.lose()
			return false
		}
	}
	l.mu.Unlock()
	return true
}

// lose ends the lease for good: whatever the store may say later, it is lost.
func (l *Lease) lose() {
	if l.stop(lost) != held {
		return
	}
	l.end(ErrLost)
	l.mu.Lock()
	holds := l.holds
	l.mu.Unlock()
	for _, h := range holds {
		l.locker.waiters.vacate(h)
	}
	l.tellLost()
}

// acquired is when the acquire of the lease ended: with its last grant, or now, with err
// or a finished record.
func (l *Lease) acquired(err error) clock.Moment {
	switch last := len(l.holds) - 1; {
	case err != nil || last < 0:
		return l.locker.now()
	case l.after > 0:
		return l.since // when the hold was passed on
	default:
		return l.holds[last].arrived
	}
}

// announce tells the observer that the lease was acquired, and how it has ended if
// that has happened already.
func (l *Lease) announce(ctx context.Context, wait time.Duration) {
	defer func() { // also if the observer panics: it was told
		l.mu.Lock()
		l.announced = true
		unheard, state := l.unheard, l.state
		l.mu.Unlock()
		switch {
		case !unheard:
		case state == lost:
			l.tellLost()
		default: // Close has given it back, and knows how that went
			l.tellEnd(ctx, Released, l.locker.now().Since(l.since), l.err)
		}
	}()
	if l.locker.listens(Acquired) {
		e := l.outcome(Acquired)
		e.Wait = wait
		l.locker.observe(ctx, e)
	}
}

func (l *Lease) tellLost() {
	l.locker.forfeit(l)
	l.tellEnd(context.WithoutCancel(l.under), Lost, l.locker.now().Since(l.since), ErrLost)
}

// tellEnd tells the observer how the lease has ended. It leaves that to announce if
// that has not come to tell that the lease was acquired.
func (l *Lease) tellEnd(ctx context.Context, k Kind, held time.Duration, err error) {
	l.mu.Lock()
	told := l.announced
	l.unheard = !told
	l.mu.Unlock()
	if told && l.locker.listens(k) {
		e := l.outcome(k)
		e.Held, e.Err = held, err
		l.locker.observe(ctx, e)
	}
}

// stop changes a held lease's state, and returns the state before. A lost lease
// is not extended any more.
func (l *Lease) stop(to state) state {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.state
	if before == held {
		l.state = to
		if to == lost {
			for _, h := range l.holds {
				h.retire()
			}
		}
	}
	return before
}

// overruns tells that the lease is not to be extended any more.
func (l *Lease) overruns() bool {
	if l.opts.noRenew {
		return true
	}
	if l.opts.maxHold == 0 {
		return false
	}
	age := l.locker.now().Since(l.since)
	if age < l.opts.maxHold {
		return false
	}
	l.mu.Lock()
	first := !l.overrun && l.state == held
	l.overrun = true
	l.mu.Unlock()
	if first {
		e := l.event(Overrun)
		e.Held = age
		l.tell(e)
	}
	return true
}

func (l *Lease) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == gone || l.releasing
}
