package core

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/store"
)

// Passing on: if a lease is released while callers of its process wait for its key, the
// lease passes its hold on to the first of them without asking the store first.
// DESIGN.md gives the reasons, and the properties that passing on preserves.
//
//	a lease has the hold, the head of the queue is parked for it
//	   │ the lease is released
//	   ├─ pass: yes ──→ between two leases ──┬─ giveTo ──────→ the head's lease has it
//	   │                 confirmed: asks     ├─ mayMoveOn ──→ the next waiter is given it
//	   │                 the store           └─ abandon ────→ released in the background
//	   └─ pass: no ───→ the head asks the store for a place, then the hold is released
//
// The state has two parts. The fields parked, timed and hold of queue, and the last
// fields of waiter, are guarded by the mutex of waiters. The field passing of hold is
// guarded by the mutex of the hold.

// passing is the state of a hold that is passed on. The mutex of the hold guards it.
type passing struct {
	barred    bool  // the hold is no longer passed on
	shown     bool  // the hold's owner was shown, so other callers may join
	releasing bool  // the release has begun, and its answer is the answer of next
	passes    uint8 // the number of times that the hold was passed on

	asked *confirmation // the last confirmation whose request was begun
	next  *confirmation // the confirmation for callers that came after asked
}

// confirmation is one call that asks the store whether it has the hold, with the
// callers that wait for the answer. One call is in flight at a time:
//
//	a caller           waits for the answer to the next call (passing.next)
//	its first caller   makes that call when the call before it (passing.asked) returns
//	the answer "lost"  is also the answer for the callers of passing.next
//	a missing answer   concerns only the callers of that call; passing.next asks again
//	the release        replaces passing.next, and answers its callers and all later ones
type confirmation struct {
	done chan struct{} // closed when err is known
	err  error

	// assumed means that success is inferred: the store no longer had the hold, probably
	// because the release itself ended it. Either an earlier attempt of the release had
	// no answer, or the hold could have expired. The hold may nevertheless have been lost
	// before.
	assumed bool
}

// answer sends err to the waiting callers. A nil confirmation has no callers to answer.
func (c *confirmation) answer(err error, assumed bool) {
	if c != nil {
		c.err, c.assumed = err, assumed
		close(c.done)
	}
}

// fits reports whether h can be passed on to w.
func (w *waiter) fits(h *hold) bool {
	return w.accepts && w.ttl == h.ttl && w.minToken <= h.token
}

// park parks the head of q if possible, and reports whether the head is parked. A
// parked head waits for the hold of this process instead of asking the store. If
// waiters can be woken, the head is parked only for a hold that fits, and only while
// that hold may be passed on. After that time the head asks the store for a place in
// its list. If waiters cannot be woken, the store has no such list, and a head without
// tryOnly is parked for any hold, until the hold is passed on or released.
func (ws *waiters) park(q *queue) bool {
	w, h := q.head(), q.hold
	if h == nil || w.tryOnly || ws.wakeable.Load() && (!w.fits(h) || !ws.awaitPass(q, h)) {
		return false
	}
	q.parked = true
	if w.ready == nil {
		w.ready = make(chan struct{})
	}
	for b := range q.behind(w, false) {
		ws.refuse(q, b, q.refusal())
	}
	return true
}

// awaitPass reports whether h, the hold of q, may still be passed on, so that the head
// can be parked for h. It starts a timer that unparks the head when h may no longer be
// passed on.
func (ws *waiters) awaitPass(q *queue, h *hold) bool {
	left := h.passTimeLeft()
	if left > 0 && !q.timed {
		q.timed = true
		time.AfterFunc(left, func() { ws.unpark(h) })
	}
	return left > 0
}

// unpark makes the head that is parked for h ask the store, because h is no longer
// passed on. If waiters cannot be woken, the head stays parked until the key is
// released.
func (ws *waiters) unpark(h *hold) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.queueOf(h); q != nil && q.parked && ws.wakeable.Load() {
		q.wakeToAsk()
	}
}

// passOn passes h, the hold of a released lease, on to the parked head if willing is
// true, h fits and h may be passed on. Otherwise the caller releases h. Before that the
// head asks the store for a place in its list, if it has no place yet, and placed is
// closed when the store has answered. If waiters cannot be woken, the head stays parked
// and passOn returns parked. The caller then calls holdEnded after it has released h.
func (ws *waiters) passOn(h *hold, willing bool) (passed bool, placed <-chan struct{}, parked bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.queueOf(h)
	if q == nil {
		return false, nil, false
	}
	w := q.head()
	if q.parked && ws.closing.Err() == nil && willing && w.fits(h) && h.pass() {
		w.given, q.parked = h, false
		close(w.ready)
		return true, nil, false
	}
	ws.turns.noteRelease(h.key)
	switch {
	case q.parked && !ws.wakeable.Load():
		return false, nil, true
	case q.parked:
		q.wakeToAsk()
	}
	if w != nil {
		placed = w.placed
	}
	q.hold = nil
	ws.dropEmpty(h.key, q)
	return false, placed, false
}

// holdEnded records that h no longer has its key. A parked head then asks the store.
func (ws *waiters) holdEnded(h *hold) {
	now := ws.now()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q := ws.queueOf(h)
	if q == nil {
		return
	}
	q.hold = nil
	if q.parked {
		q.head().pause = min(now.Since(h.arrived), passTime) / 2 // half of this process's time is for others
		q.wakeToAsk()
	}
	ws.dropEmpty(h.key, q)
}

// passable returns the lease's hold if the hold can be passed on, or nil. A hold can be
// passed on if the lease has usual terms, is not of a run, and has a single hold that
// has joined no other hold. Every attempt of the lease's acquire must have an answer.
func (l *Lease) passable() *hold {
	if !l.opts.usual || l.opts.record != nil || len(l.holds) != 1 || l.unsure[l.key] {
		return nil
	}
	if h := l.holds[0]; h.owner == h.id {
		return h
	}
	return nil
}

// passOrRelease passes the lease's hold on to a waiter of this process, or releases it.
func (l *Lease) passOrRelease(ctx context.Context, r *store.Record, until time.Time) error {
	h := l.passable()
	if h == nil {
		return l.releaseHolds(r, until)
	}
	ws := &l.engine.waiters
	passed, placed, parked := ws.passOn(h, !l.tooOld(l.engine.now()))
	if passed {
		l.engine.observe(ctx, l.event(PassedOn))
		return h.confirmed(until)
	}
	if parked {
		defer ws.holdEnded(h) // deferred, so that the head asks when the key is free
	}
	if placed != nil {
		// The waiter's place keeps the order among processes. The hold is no longer
		// extended from here on, and must last until it is released.
		rest := h.remaining(l.engine.now())
		h.retire()
		select {
		case <-placed:
		case <-time.After(min(askTime, rest/4)):
		}
	}
	return l.releaseHolds(r, until)
}

// passTimeLeft returns the time for which the hold may still be passed on, or 0. pass
// makes the final decision.
func (h *hold) passTimeLeft() time.Duration {
	now := h.keeper.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passExpired(now) || h.tokensUsed() {
		return 0
	}
	return passTime - now.Since(h.arrived)
}

// pass takes the hold from its released lease for the next lease, and reports whether
// the hold may be passed on. Passing on is not allowed
//   - after the owner was shown, because a caller may join the hold,
//   - after a call of Lease.Extend,
//   - after passTime, after store.TokenStep leases, after a loss or after a
//     confirmation without an answer,
//   - without a recent confirmation by the store.
//
// The caller holds the waiters' mutex.
func (h *hold) pass() bool {
	now := h.keeper.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passing.shown || h.reach != 0 || h.passExpired(now) || h.tokensUsed() || h.unconfirmed(now) {
		return false
	}
	h.passing.passes++
	h.lease = nil
	return true
}

// show records that l has shown the owner of the hold, so that a caller may join the
// hold. It returns false if l has passed the hold on.
func (h *hold) show(l notices) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease != l {
		return false
	}
	h.passing.shown = true
	return true
}

// giveTo makes l the lease of the hold that was passed on to l, and returns the number
// of times that the hold was passed on. If the hold is lost or no longer trusted,
// giveTo changes nothing and returns false.
func (h *hold) giveTo(l notices, now clock.Moment) (passes uint8, trusted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trustLeft(now) == 0 {
		return 0, false
	}
	h.lease = l
	return h.passing.passes, true
}

// mayMoveOn reports whether the hold may go to another waiter after its first receiver
// has left without taking it. No lease has had the hold since pass, so the conditions
// of pass for the lease and the tokens are still met.
func (h *hold) mayMoveOn() bool {
	now := h.keeper.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.passExpired(now) && !h.unconfirmed(now)
}

// passExpired reports whether the hold is older than passTime, no longer trusted or
// barred. The caller holds the mutex.
func (h *hold) passExpired(now clock.Moment) bool {
	return h.passing.barred || h.trustLeft(now) == 0 || now.Since(h.arrived) >= passTime
}

// tokensUsed reports whether no token is left for another lease. The caller holds the mutex.
func (h *hold) tokensUsed() bool { return h.passing.passes >= store.TokenStep-1 }

// unconfirmed reports whether the last confirmation is too old to pass the hold on. The
// caller holds the mutex.
func (h *hold) unconfirmed(now clock.Moment) bool {
	return now.Since(h.from) > min(passTime, h.valid/50)
}

// confirmed asks the store whether it has the hold, for a lease that has passed the
// hold on. Callers that come while a call is in flight share the next call, or the
// release of the hold. confirmed returns nil, ErrLost, or the reason for a missing
// answer. After an error the hold is no longer passed on.
func (h *hold) confirmed(until time.Time) (err error) {
	c, asks := h.confirmation()
	if !asks {
		<-c.done
		return c.err
	}
	err = errNoEnd // stays if the store panics
	defer func() { err = h.confirmAnswered(c, err) }()
	return h.keeper.persist(h.ttl, until, func(ctx context.Context) error {
		_, answers := h.keeper.extendHolds(ctx, budget(h.ttl), 0, []*hold{h})
		return answers[0].Err
	})
}

// confirmation returns the confirmation that the caller shares. asks reports whether
// the caller has to make the call to the store.
func (h *hold) confirmation() (c *confirmation, asks bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passing.next != nil {
		return h.passing.next, false
	}
	c = &confirmation{done: make(chan struct{})}
	before := h.passing.asked
	h.passing.next = c
	h.mu.Unlock()
	runtime.Gosched() // leases that are about to pass the hold on share the call, or release the hold
	if before != nil {
		select {
		case <-before.done:
		case <-c.done: // the release or a loss answered c
		}
	}
	h.mu.Lock()
	if h.passing.next != c || h.passing.releasing {
		return c, false // a loss or the release answers c
	}
	h.passing.asked, h.passing.next = c, nil
	return c, true
}

// confirmAnswered sends the store's answer to the callers of c, and returns it for the
// caller that has asked. After a loss, the callers that came later get the same answer,
// because another call could only repeat it or stay without an answer.
func (h *hold) confirmAnswered(c *confirmation, err error) error {
	lost := errors.Is(err, ErrLost)
	h.mu.Lock()
	next, ending := h.passing.next, h.passing.releasing
	final := lost && !ending // no release in flight can be the reason of the loss
	if final {
		h.passing.next = nil
	}
	h.passing.barred = h.passing.barred || err != nil
	h.mu.Unlock()
	if lost && ending {
		// The hold's release was in flight and may have reached the store first. A
		// release does not wait for a confirmation, so this wait ends.
		if <-next.done; !next.assumed {
			err = next.err
		}
	}
	c.answer(err, false)
	if final {
		next.answer(err, false)
		h.lose()
	}
	return err
}

// beginRelease records that the hold is about to be released. It returns the
// confirmation that gets the release's answer, and all waiting callers get that answer.
// It returns nil if no caller can wait: the hold was never passed on, or an earlier
// release has answered.
func (h *hold) beginRelease() *confirmation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passing.barred = true
	if h.passing.passes == 0 || h.passing.releasing { // a release that panicked was answered
		return nil
	}
	h.passing.releasing = true
	if h.passing.next == nil {
		h.passing.next = &confirmation{done: make(chan struct{})}
	}
	return h.passing.next
}
