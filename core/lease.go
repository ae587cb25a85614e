package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/retry"
)

// Lease is a lock that is held, until it is released or lost. Its methods are
// safe for concurrent use.
type Lease struct {
	locker  *Locker
	key     string
	name    string
	opts    terms
	outer   *Lease          // the innermost lease of the context it was acquired under
	under   context.Context // that it was acquired under
	since   moment          // of the first grant
	granted moment          // when the grant of the last key had arrived
	run     *run            // of a lease of Begin
	chain   *chain          // of hand-overs that the lease is in, nil if it began none
	place   int             // in the Locker's list, from 1, under its mutex; 0 if it is not listed

	unsure   map[string]bool // keys of which an attempt's outcome is unknown
	released sync.WaitGroup  // done when Release has its answer
	err      error           // that answer

	mu        sync.Mutex
	ctx       leaseContext
	cancel    context.CancelCauseFunc // of ctx, nil as long as it need not be there
	cause     error                   // why it has ended, if that was before
	state     state
	running   bool // start was called and succeeded: there is a context to end
	overrun   bool
	releasing bool
	withdrawn bool // its run has not begun
	announced bool // the observer was told that it was acquired
	unheard   bool // it was lost before that
	shown     bool // somebody may know its owner
	heads     bool // a line waits for it; set before its acquire returns
	passedOn  bool // its hold is the next one's
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

// hold is a lease's part in one key.
type hold struct {
	lease *Lease
	claim Claim // as granted
	token uint64
	// carried says that the store may tell who joins another token than this,
	// so that it travels with the owner.
	carried bool
	tenure  *tenure // nil if the hold is of this lease only

	// Under the lease's mutex: the last confirmed attempt, how long it is valid
	// from there, and the timer that ends our trust in it.
	from  moment
	valid time.Duration
	timer *time.Timer
	reach time.Duration // since started, 0 if never: until when the store may keep it because of Extend, confirmed or not

	// Under the watchdog's mutex.
	early time.Duration // how much earlier will do
	seat  *seat         // in the queue; nil if not in it
}

func newLease(l *Locker, ctx context.Context, r *request) *Lease {
	lease := &Lease{locker: l, key: r.key, name: r.name, opts: r.terms, under: ctx}
	lease.released.Add(1)
	lease.outer, _ = LeaseFromContext(ctx)
	lease.ctx.lease = lease
	if ctx.Done() != nil {
		// What becomes of ctx later is not to be found out by asking it then.
		lease.ctx.Context, lease.cancel = context.WithCancelCause(ctx)
	}
	return lease
}

// Key is the key that was asked for, without those of Also.
func (l *Lease) Key() string { return l.key }

// Owner is opaque and unguessable. Who knows it can join this hold by
// ContextWithOwner, so it is a secret. If it is first asked for when the lease
// has ended, it may be nobody's.
func (l *Lease) Owner() string { return joinOwner(l.show(l.hold(l.key))) }

// show tells the owner of a hold of the lease, and its token if that has to go
// with it. From now on somebody may join.
func (l *Lease) show(h *hold) (owner string, token uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = true
	switch {
	case l.passedOn:
		return newID(), 0 // who asks only now must not join the next one
	case h.carried:
		token = h.token
	}
	return h.claim.Owner, token
}

// Token is the fencing token of Key: greater than that of every earlier holder,
// and the same for leases that re-entered. Send it with every write, to a
// resource that refuses older ones. It is 0 for shared leases and permits, and
// where the store cannot fence.
func (l *Lease) Token() uint64 { return l.hold(l.key).token }

// TokenOf is the fencing token of one of the lease's keys, 0 for any other.
func (l *Lease) TokenOf(key string) uint64 {
	if h := l.hold(key); h != nil {
		return h.token
	}
	return 0
}

// Deadline is until when this process vouches for the lease, if nothing more is
// heard from the store. It moves with each extension, and is in the past when
// the lease has ended.
func (l *Lease) Deadline() time.Time {
	wall := time.Now() // first: what takes time from here on makes the deadline earlier
	now := l.locker.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var left time.Duration
	for i, h := range l.holds {
		if d := trust(h.valid) - now.since(h.from); i == 0 || d < left {
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
// is out of range, and with ErrUnavailable if the store did not confirm, in
// which case the lease is as good as before.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ttl < minTTL || ttl > maxTTL {
		return fmt.Errorf("extend %s: TTL is %v, %v to %v is allowed: %w", l.name, ttl, minTTL, maxTTL, ErrInvalid)
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

func (l *Lease) extend(ctx context.Context, ttl time.Duration) error {
	if !l.vouch() {
		return ErrLost
	}
	ctx, cancel := context.WithTimeout(ctx, budget(ttl))
	defer cancel()
	start := l.locker.now()
	claims := make([]Claim, len(l.holds))
	l.mu.Lock()
	if l.state != held {
		l.mu.Unlock()
		return ErrLost // the hold may be another lease's by now
	}
	for i, h := range l.holds {
		claims[i] = h.claim
		claims[i].TTL = ttl
		if end := start.at + ttl + budget(ttl); h.reach == 0 || end > h.reach {
			h.reach = end
		}
	}
	l.mu.Unlock()
	answers := l.locker.store.Extend(ctx, claims)
	for i, h := range l.holds {
		x := answerTo(i, answers)
		switch {
		case says(ctx, x.Err, ErrLost):
			l.lose()
			return ErrLost
		case x.Err != nil:
			return x.Err
		case x.Valid == 0:
			x.Valid = ttl
		}
		if !l.confirm(h, start, x.Valid) {
			return ErrLost
		}
	}
	return nil
}

// Release gives the lease back. It works on an ended ctx and is bounded by
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
	case l.locker.unobserved():
	case !wasLost:
		l.locker.observe(ctx, Event{Kind: Released, Name: l.name, Held: held, Err: l.err})
	case r != nil && errors.Is(l.err, ErrLost): // that the lease was lost was told, and not that its answer is
		l.locker.observe(ctx, Event{Kind: CleanedUp, Name: l.name, Err: l.err})
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
	l.vouchAt(now)
	wasLost = l.stop(gone) == lost
	if wasLost {
		l.end(ErrLost) // before it ends as released
	}
	l.end(nil)
	if !l.locker.unobserved() {
		held = now.since(l.since)
	}
	if wasLost && r == nil {
		// The store may still have something of it, but nobody has to wait for that.
		l.abandon()
		err = ErrLost
	} else {
		err = l.giveUp(r, now.time().Add(releaseLimit))
	}
	return held, wasLost
}

// endError is what a call that ends the lease says of the store's err.
func (l *Lease) endError(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLost):
		return fmt.Errorf("%s %s: %w", op, l.name, ErrLost)
	}
	return unavailable(op, l.name, err)
}

// giveUp hands the lease over to who waits for it in this process, or gives it
// back.
func (l *Lease) giveUp(r *Record, until time.Time) error {
	if tried, err := l.handOver(until); tried {
		l.locker.lines.vacate(l)
		return err
	}
	return l.giveBack(r, until)
}

// giveBack releases at the store whatever this lease, which has ended, may have
// there, with the record of a run.
func (l *Lease) giveBack(r *Record, until time.Time) error {
	if l.heads {
		defer l.locker.lines.vacate(l)
	}
	var first error
	for _, h := range slices.Backward(l.holds) {
		c := l.leaving(h)
		c.Record = r
		err := l.giveBackOne(h, c, until)
		if first == nil {
			first = err
		}
	}
	return first
}

func (l *Lease) giveBackOne(h *hold, c Claim, until time.Time) (err error) {
	end := h.tenure.ending()
	assumed := false
	defer func() { end.answer(err, assumed) }()
	err = errNoEnd
	assumed, err = l.locker.release(c, l.name, false, l.unsure[h.claim.Key], until)
	return err
}

// abandon is giveBack in the background.
func (l *Lease) abandon() {
	l.stop(gone)
	l.end(nil)
	l.locker.lines.vacate(l)
	for _, h := range l.holds {
		l.locker.cleaner.end(h.tenure, l.leaving(h), l.name, l.unsure[h.claim.Key])
	}
}

// leaving is the claim that releases h. Its TTL is how long it matters. A run
// that nobody was told of has not begun.
func (l *Lease) leaving(h *hold) Claim {
	c := h.claim
	l.mu.Lock()
	if h.reach != 0 {
		if left := h.reach - time.Since(started); left > c.TTL {
			c.TTL = left - left%time.Millisecond
		}
	}
	l.mu.Unlock()
	if l.running && l.opts.keep > 0 {
		c.Keep = max(0, l.opts.keep-l.locker.now().since(l.granted))
	}
	c.Undo = l.opts.record != nil && (!l.running || l.withdrawn)
	return c
}

// hold is the lease's part in key, nil if it has none.
func (l *Lease) hold(key string) *hold {
	for _, h := range l.holds {
		if h.claim.Key == key {
			return h
		}
	}
	return nil
}
