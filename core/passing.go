package core

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/store"
)

// Passing on: a lease that is released while others of its process wait passes its hold
// to the first of them, and sends nothing before that. DESIGN.md gives the reasons, and
// what is preserved.
//
//	a lease has the hold, the head of the queue is parked for it
//	   │ the lease is released
//	   ├─ pass: yes ──→ between two leases ──┬─ giveTo ──────→ the head's lease has it
//	   │                 confirmed: asks     ├─ mayMoveOn ──→ the next waiter is given it
//	   │                 the store           └─ abandon ────→ released in the background
//	   └─ pass: no ───→ the head asks the store for a place, then the hold is released
//
// The queue's part of the state is parked, timed, hold and the last fields of waiter,
// under the mutex of waiters. The hold's part is passing, under the mutex of the hold.

// passing is the state of a hold that is passed on. The mutex of the hold guards it.
type passing struct {
	barred    bool  // it is not passed on any more
	shown     bool  // the owner of the lease that has it was shown
	releasing bool  // its release has begun, and answers next
	passes    uint8 // the number of leases that had it before this one

	asked *confirmation // the last confirmation for which the store was asked
	next  *confirmation // the confirmation for callers that came after that
}

// confirmation is one call that asks whether the store has the hold, with the callers
// that wait for its answer. One call is in flight at a time:
//
//	a caller           waits for the next call: passing.next
//	the first of them  makes it, when the one before it (passing.asked) is answered
//	answer "lost"      is the answer of passing.next too
//	no answer          is that of these callers only; passing.next asks again
//	the release        is the next call of passing.next, and of all callers after it
type confirmation struct {
	done chan struct{} // closed when err is known
	err  error

	// assumed is set for a release that was sent twice: the first had no answer, and
	// the second found nothing. Then err is nil, because the first probably ended the
	// hold. This is a guess: the hold may have been lost before.
	assumed bool
}

// answer sends err to the waiting callers. A nil confirmation has no callers.
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

// park parks the head to wait for the hold of this process instead of asking the store,
// and reports whether it does. Where waiters can be woken, the head is parked only for
// a hold that fits, and only as long as that hold may be passed on. Then the head asks
// the store for a place in its list. Where waiters cannot be woken there is no such
// list: the head is parked in any case, until the hold is passed on or released.
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

// awaitPass reports whether the head can be parked for h, the hold of q, because h may
// still be passed on. A timer unparks the head when the time for that has passed.
func (ws *waiters) awaitPass(q *queue, h *hold) bool {
	left := h.passTimeLeft()
	if left > 0 && !q.timed {
		q.timed = true
		time.AfterFunc(left, func() { ws.unpark(h) })
	}
	return left > 0
}

// unpark makes the head that is parked for h ask the store, because h is not passed on
// any more. Where waiters cannot be woken, the head stays parked until the key is
// released.
func (ws *waiters) unpark(h *hold) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.queueOf(h); q != nil && q.parked && ws.wakeable.Load() {
		q.wakeToAsk()
	}
}

// passOn passes h, the hold of a released lease, on to the parked head, if the lease is
// willing. Otherwise the key is about to be released, and the head first asks the store
// for a place in its list, if it has none yet: placed is closed when the store has
// answered. Where waiters cannot be woken the head stays parked (parked): the caller
// then calls holdEnded after the hold is released.
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

// holdEnded records that h no longer has its key: a parked head then asks the store.
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
		q.head().pause = min(now.Since(h.arrived), passTime) / 2 // other processes get half of the time that this one had
		q.wakeToAsk()
	}
	ws.dropEmpty(h.key, q)
}

// passable returns the lease's hold if it can be passed on. For that the lease has
// usual terms and a single hold, and joined no other. No attempt of its acquire may be
// without an answer.
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
		defer ws.holdEnded(h) // deferred: the head is to ask when the key is free
	}
	if placed != nil {
		// The waiter's place keeps the order among processes. The hold is not extended
		// any more, and must last until it is released.
		rest := h.remaining(l.engine.now())
		h.retire()
		select {
		case <-placed:
		case <-time.After(min(askTime, rest/4)):
		}
	}
	return l.releaseHolds(r, until)
}

// passTimeLeft returns how long the hold may still be passed on, or 0. pass decides
// whether it is.
func (h *hold) passTimeLeft() time.Duration {
	now := h.keeper.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passExpired(now) || h.tokensUsed() {
		return 0
	}
	return passTime - now.Since(h.arrived)
}

// pass takes the hold from its lease, which is released, for the next lease, and
// reports whether that is allowed. It is not allowed
//   - after the owner was shown: a caller may join it,
//   - after the lease was extended by its caller,
//   - after passTime, store.TokenStep leases, a loss or an unanswered confirmation,
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

// show records that l has shown the owner of the hold, so that a caller may join it. It
// returns false if l has passed the hold on.
func (h *hold) show(l notices) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease != l {
		return false
	}
	h.passing.shown = true
	return true
}

// giveTo makes l the lease of the hold that was passed on to it, and returns the number
// of leases that had the hold before. If the hold is lost or no longer trusted, l does
// not get it.
func (h *hold) giveTo(l notices, now clock.Moment) (passes uint8, trusted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trustLeft(now) == 0 {
		return 0, false
	}
	h.lease = l
	return h.passing.passes, true
}

// mayMoveOn reports whether the hold may go to another waiter if the one to which it
// was passed on leaves without it. No lease has had the hold since pass, so the
// conditions of pass on the lease and the tokens still hold.
func (h *hold) mayMoveOn() bool {
	now := h.keeper.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.passExpired(now) && !h.unconfirmed(now)
}

// passExpired reports whether the time for passing the hold on has passed, or the hold
// is not trusted any more or barred. The caller holds the mutex.
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
// hold on. Callers that come while the store is being asked share the next call, or the
// release of the hold. It returns nil, ErrLost, or the reason for a missing answer.
// After an error the hold is not passed on any more.
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

// confirmation returns the confirmation that a caller shares, and whether the caller
// has to ask the store for it.
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
	runtime.Gosched() // leases about to pass it on share the call, or release it
	if before != nil {
		select {
		case <-before.done:
		case <-c.done: // the release was faster
		}
	}
	h.mu.Lock()
	if h.passing.next != c || h.passing.releasing {
		return c, false // a loss or the release answers it
	}
	h.passing.asked, h.passing.next = c, nil
	return c, true
}

// confirmAnswered passes the store's answer to the callers of c. After a loss the
// callers that came later get the same answer: the next call could only say the same,
// or have no answer. It returns the answer for the caller that has asked.
func (h *hold) confirmAnswered(c *confirmation, err error) error {
	lost := errors.Is(err, ErrLost)
	h.mu.Lock()
	next, ending := h.passing.next, h.passing.releasing
	final := lost && !ending // no release in flight can be the reason
	if final {
		h.passing.next = nil
	}
	h.passing.barred = h.passing.barred || err != nil
	h.mu.Unlock()
	if lost && ending {
		// The hold's release was in flight and perhaps came first. A release waits for
		// no confirmation, so this wait ends.
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

// beginRelease records that the hold is about to be released, and returns the
// confirmation for the release's answer: all callers that wait for one get it. It
// returns nil if the hold was never passed on, so that no caller waits.
func (h *hold) beginRelease() *confirmation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passing.barred = true
	if h.passing.passes == 0 || h.passing.releasing { // a release that has panicked was answered
		return nil
	}
	h.passing.releasing = true
	if h.passing.next == nil {
		h.passing.next = &confirmation{done: make(chan struct{})}
	}
	return h.passing.next
}
