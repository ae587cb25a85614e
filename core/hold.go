package core

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/due"
	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/retry"
)

// passTime is how long after its grant a hold is passed on at most, and how old
// the last confirmation of it may be then.
const passTime = 10 * time.Millisecond

// hold is one grant of a key at the store, and the lease that has it. Everything
// that happens at the store happens to a hold: it is extended, confirmed, passed on
// to another lease of this process, lost and released. DESIGN.md draws its states, and
// the order of the mutexes.
type hold struct {
	locker        *Locker
	key           string // the claim as it was granted
	owner, id     string
	weight, limit int64
	ttl           time.Duration
	token         uint64       // of the grant; its leases have this one and those after it
	arrived       clock.Moment // when the grant had arrived

	mu     order.Mutex[holdRank]
	lease  *Lease        // that has it; nil between two leases
	from   clock.Moment  // when the last confirmed call began,
	valid  time.Duration // and how long the hold lasts from then on
	timer  *time.Timer   // ends the trust in it; nil before the first extension is due
	reach  time.Duration // since arrived: until when the store may keep it because of Extend, confirmed or not; 0 if never
	lost   bool          // the store no longer has it, or may no longer have it
	last   bool          // it is not passed on any more
	paced  bool          // the waiters hear of it when its time to be passed on is over
	left   bool          // it is retired: it is not extended any more
	passes uint8         // how many leases have had it before this one

	asking bool          // the store is being asked for a confirmation
	next   *confirmation // for the callers that came since the store was asked
	end    *confirmation // the release of the hold, once it has begun

	// Under the watchdog's mutex.
	early time.Duration    // how much earlier it may be extended
	entry *due.Entry[hold] // in the watchdog's queue; nil if not in it
}

// claim is what extends and releases the hold.
func (h *hold) claim() Claim {
	return Claim{Key: h.key, Owner: h.owner, Lease: h.id, Weight: h.weight, Limit: h.limit, TTL: h.ttl}
}

// trust is how much of a validity a holder relies on. The margin covers clocks
// that run at different rates and a timer that fires late on a busy machine.
func trust(valid time.Duration) time.Duration {
	return valid - valid/20 - 2*time.Millisecond
}

// budget bounds one call to the store: short against the lease, so that several
// attempts fit into it.
func budget(ttl time.Duration) time.Duration {
	return min(max(ttl/6, 20*time.Millisecond), 2*time.Second)
}

// remaining is how long this process relies on the hold from now on.
func (h *hold) remaining(now clock.Moment) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rest(now)
}

// rest is remaining for callers that hold the mutex.
func (h *hold) rest(now clock.Moment) time.Duration { return trust(h.valid) - now.Since(h.from) }

// trusted tells whether this process may rely on the hold.
func (h *hold) trusted(now clock.Moment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lost && h.rest(now) > 0
}

// holder is the lease that has the hold, nil between two leases.
func (h *hold) holder() *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

// guard gives the hold the timer that ends the trust in it, if it has none. It
// gets it when its first extension is due: most holds are released before.
func (h *hold) guard() {
	now := h.locker.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.left && h.timer == nil {
		// If its time is over, the timer tells that: it holds up no other hold.
		h.timer = time.AfterFunc(h.rest(now), h.check)
	}
}

// check is called by the hold's timer. It ends the trust in the hold, or sets the timer
// again if that was early, as after the machine was suspended.
func (h *hold) check() {
	now := h.locker.now()
	h.mu.Lock()
	rest := h.rest(now)
	switch {
	case h.left || h.lost:
	case rest <= 0:
		h.mu.Unlock()
		h.lose()
		return
	case h.timer == nil:
		h.timer = time.AfterFunc(max(rest, time.Millisecond), h.check)
	default:
		h.timer.Reset(max(rest, time.Millisecond))
	}
	h.mu.Unlock()
}

// lose notes that the hold is lost, and tells the lease that has it.
func (h *hold) lose() {
	h.mu.Lock()
	h.lost = true
	lease := h.lease
	h.mu.Unlock()
	if lease != nil {
		lease.lose()
	}
}

// confirm notes that the store extended the hold by a call that began at start.
// It never shortens the trust. It reports whether the hold is still trusted: an answer
// that comes after the end of the trust revives nothing.
func (h *hold) confirm(start clock.Moment, valid time.Duration) bool {
	now := h.locker.now()
	h.mu.Lock()
	if h.left || h.lost {
		h.mu.Unlock()
		return false
	}
	if h.rest(now) <= 0 {
		h.mu.Unlock()
		h.lose()
		return false
	}
	defer h.mu.Unlock()
	if left := trust(valid) - now.Since(start); left > h.rest(now) {
		h.from, h.valid = start, valid
		if h.timer != nil {
			h.timer.Reset(left)
		}
	}
	return true
}

// retire has the watchdog leave the hold: it is about to be released.
func (h *hold) retire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.locker.watchdog.remove(h)
}

// stands tells that the hold was neither lost nor retired.
func (h *hold) stands() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.lost && !h.left
}

// offers tells whether the hold may yet be passed on. If so, q hears of it when its
// time for that is over.
func (h *hold) offers(q *waiters) bool {
	now := h.locker.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over(now) || h.used() {
		return false
	}
	if !h.paced {
		h.paced = true
		time.AfterFunc(passTime-now.Since(h.arrived), func() { q.pace(h) })
	}
	return true
}

// over tells that the time in which the hold may be passed on is over, or that
// something happened to it. The caller holds the mutex.
func (h *hold) over(now clock.Moment) bool {
	return h.last || h.lost || h.left || now.Since(h.arrived) >= passTime
}

// used tells that no token is left for another lease. The caller holds the mutex.
func (h *hold) used() bool { return h.passes >= TokenStep-1 }

// old tells that the store has not confirmed the hold for a while. The caller holds
// the mutex.
func (h *hold) old(now clock.Moment) bool { return now.Since(h.from) > min(passTime, h.valid/50) }

// moves tells whether the hold, which was passed on to a waiter that leaves without
// it, may go to another one.
func (h *hold) moves() bool {
	now := h.locker.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.over(now) && !h.old(now)
}

// pass takes the hold from l, which has ended, for the lease that comes next. It
// reports whether that is allowed. It is not if the owner of l was shown, so that a
// caller may join it; if l was extended by its caller or held for longer than its
// MaxHold; or if the store has not confirmed the hold for a while. The caller holds the waiters'
// mutex.
func (h *hold) pass(l *Lease) bool {
	now := h.locker.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	overrun := l.opts.maxHold > 0 && now.Since(l.since) >= l.opts.maxHold
	if l.shown || overrun || h.reach != 0 || h.over(now) || h.used() || h.old(now) {
		return false
	}
	h.passes++
	h.lease, l.passed = nil, true
	return true
}

// take gives the hold that was passed on to l, and reports whether it is still
// good for that.
func (h *hold) take(l *Lease) bool {
	now := h.locker.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost || h.rest(now) <= 0 {
		return false
	}
	h.lease = l
	l.holds = append(l.one[:0], h)
	l.since, l.after = now, h.passes
	return true
}

// confirmation is a call that says whether the store has the hold, for all callers that
// wait for it.
type confirmation struct {
	lead chan struct{} // one of them receives from it, and makes the call
	done chan struct{} // closed when err is known
	err  error
	also *confirmation // has the same answer

	// assumed says that err is nil although the hold was gone, as it was perhaps
	// released by a call without an answer.
	assumed bool
}

// errNoEnd is the answer to callers that wait for a call that has panicked.
var errNoEnd = errors.New("the call did not come to its end")

func newConfirmation() *confirmation {
	return &confirmation{lead: make(chan struct{}, 1), done: make(chan struct{})}
}

// answer tells all waiting callers. A nil confirmation has none.
func (c *confirmation) answer(err error, assumed bool) {
	for ; c != nil; c = c.also {
		c.err, c.assumed = err, assumed
		close(c.done)
	}
}

// confirmed asks the store whether it has the hold, for a lease that has passed it
// on. Those that come while the store is being asked are answered by the next call,
// or by the release of the hold. It returns nil, ErrLost, or why there is no answer;
// the hold is not passed on any more then.
func (h *hold) confirmed(until time.Time) (err error) {
	h.mu.Lock()
	c := h.next
	switch {
	case h.end != nil:
		c = h.end
	case c != nil:
	case h.asking:
		c = newConfirmation()
		h.next = c
	default:
		c = newConfirmation()
		h.asking = true
		c.lead <- struct{}{}
	}
	h.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-c.lead:
	}
	err = errNoEnd
	defer func() { err = h.heard(c, err) }()
	return h.ask(until)
}

// ask extends the hold, for whichever lease has it.
func (h *hold) ask(until time.Time) error {
	return h.locker.persist(h.ttl, until, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, budget(h.ttl))
		defer cancel()
		h.locker.extend(ctx, 0, []*hold{h}, func(_ *hold, _ clock.Moment, x Extension) { err = x.Err })
		return err
	})
}

// heard passes the store's answer on to the callers of c, and has one of the callers that
// came later ask next.
func (h *hold) heard(c *confirmation, err error) error {
	lost := errors.Is(err, ErrLost)
	h.mu.Lock()
	next, end := h.next, h.end
	h.next, h.asking = nil, next != nil
	h.last = h.last || err != nil
	h.mu.Unlock()
	if next != nil {
		next.lead <- struct{}{}
	}
	if lost && end != nil {
		// It was being released meanwhile, and perhaps that has come first.
		if <-end.done; !end.assumed {
			err = end.err
		}
	}
	c.answer(err, false)
	if lost && end == nil {
		h.lose()
	}
	return err
}

// reaches notes that the store may keep the hold until end, because its caller
// extends it.
func (h *hold) reaches(end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reach = max(h.reach, end.Sub(h.arrived.Time()))
}

// due has the watchdog extend the hold at a time, unless it is retired.
func (h *hold) due(at func() time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.left {
		h.locker.watchdog.schedule(h, at())
	}
}

// third is when the hold is due after an attempt from start was confirmed: a third
// into its life, or a little earlier so that holds of one moment spread. The caller
// holds the mutex.
func (h *hold) third() time.Time {
	return h.from.Time().Add(h.valid/3 - rand.N(h.valid/30+1))
}

// soon is when the hold is due after an attempt failed: soon, since its time runs
// out, but by more than the slack, since what fails together would else be tried
// again without pause. The caller holds the mutex.
func (h *hold) soon() time.Time {
	return time.Now().Add(2*h.slack() + rand.N(h.slack()+1))
}

// slack is how much earlier than due the hold may be extended, to travel along
// with another one. The caller holds the mutex.
func (h *hold) slack() time.Duration { return min(h.valid/60, time.Second/2) }

// ending notes that the hold is about to be released. The answer to that is the answer to
// all callers that wait for a confirmation. It is nil if there can be none.
func (h *hold) ending() *confirmation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = true
	if h.passes == 0 {
		return nil
	}
	h.end = newConfirmation()
	h.end.also, h.next = h.next, nil
	return h.end
}

// leaving is the claim that releases the hold. Its TTL is how long it matters.
func (h *hold) leaving() Claim {
	c := h.claim()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owner == h.id {
		c.Used = int(h.passes) + 1
	}
	if left := time.Until(h.arrived.Time().Add(h.reach)); h.reach != 0 && left > c.TTL {
		c.TTL = left - left%time.Millisecond
	}
	return c
}

// release gives c, the claim of the hold, back to the store for l, or leaves it to the
// clean-up and says why the store did not confirm that. If the claim was sent more
// often than it was answered (unsure), the store is told again, so that a straggler
// is refused.
func (h *hold) release(c Claim, l *Lease, unsure bool, until time.Time) (err error) {
	end, assumed := h.ending(), false
	defer func() { end.answer(err, assumed) }()
	err = errNoEnd
	assumed, err = h.locker.release(c, until)
	if unsure || err != nil && !errors.Is(err, ErrLost) {
		h.locker.cleanup.add(c, l, true, nil)
	}
	return err
}

// abandon is release in the background.
func (h *hold) abandon(c Claim, l *Lease, unsure bool) {
	h.retire()
	h.locker.cleanup.add(c, l, unsure, h.ending())
}

// errNoAnswer is the answer to a claim that the store gave none to. It confirms nothing.
var errNoAnswer = errors.New("the store gave no answer")

// extend asks the store once to extend holds, each for ttl or, if that is 0, for its
// own. It notes what the store confirms, and then tells heard of each: when the call
// began, and the answer, with for how long the hold was extended.
func (l *Locker) extend(ctx context.Context, ttl time.Duration, holds []*hold, heard func(h *hold, start clock.Moment, x Extension)) {
	start := l.now()
	claims := make([]Claim, len(holds))
	for i, h := range holds {
		claims[i] = h.claim()
		claims[i].TTL = cmp.Or(ttl, h.ttl)
	}
	answers := l.store.Extend(ctx, claims)
	for i, h := range holds {
		x := Extension{Err: errNoAnswer}
		if i < len(answers) {
			x = answers[i]
		}
		if x.Err == nil {
			x.Valid = cmp.Or(x.Valid, ttl, h.ttl)
			h.confirm(start, x.Valid)
		}
		heard(h, start, x)
	}
}

// releaseLimit bounds a release that the store does not answer.
const releaseLimit = 3 * time.Second

// release gives c back to the store. Assumed tells that the store no longer had it,
// which is taken for the doing of an attempt without an answer.
func (l *Locker) release(c Claim, until time.Time) (assumed bool, err error) {
	unknown := false
	err = l.persist(c.TTL, until, func(ctx context.Context) error {
		err := l.store.Release(ctx, c)
		switch {
		case errors.Is(err, ErrLost) && unknown && c.Record == nil:
			assumed = true // the attempt before did it
			return nil
		case err != nil && !errors.Is(err, ErrUnavailable):
			unknown = true
		}
		return err
	})
	return assumed, err
}

// persist calls the store until it answers, at the pace of retry.Hiccup and no later
// than until. Each call is bounded by a time that is short against ttl.
func (l *Locker) persist(ttl time.Duration, until time.Time, call func(ctx context.Context) error) error {
	_, err := retry.Do(context.Background(), retry.Hiccup, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := l.within(ctx, min(budget(ttl), time.Until(until)))
		defer cancel()
		err := call(ctx)
		if errors.Is(err, ErrLost) || time.Until(until) <= retry.Hiccup.Max {
			err = retry.Stop(err)
		}
		return struct{}{}, err
	})
	return err
}
