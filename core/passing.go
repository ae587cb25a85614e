package core

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/store"
)

// Passing on means that a lease, at its release, passes its hold on to the first caller
// of its process that waits for its key. The lease then asks the store to confirm that
// the hold still exists. DESIGN.md gives the reasons, and the properties that passing
// on preserves.
//
//	a lease has the hold, the head of the queue is parked for it
//	   │ the lease is released
//	   ├─ pass: yes ──→ between two leases ──┬─ giveTo ──────→ the head's lease has it
//	   │                 askStore: asks for  ├─ mayMoveOn ──→ the next waiter is given it
//	   │                 a confirmation      └─ abandon ────→ released in the background
//	   └─ pass: no ───→ the head asks the store for a place, then the hold is released
//
// The state has three parts. The mutex of waiters guards queuePassing and
// waiterPassing. The mutex of a hold guards passing.

// queuePassing is the part of a queue's state that concerns passing on.
type queuePassing struct {
	// hold is the hold by which this process has the key. It is nil if there is no such
	// hold, or if the hold cannot be passed on (Lease.passable).
	hold   *hold
	timed  bool // a timer was started that calls unpark for hold
	parked bool // the head waits for hold, and does not ask the store
}

// waiterPassing is the part of a waiter's state that concerns passing on: the holds
// that the waiter accepts, and the hold that it was given.
type waiterPassing struct {
	accepts  bool          // accepts a hold that is passed on
	ttl      time.Duration // the TTL that the hold must have
	minToken uint64        // the least token that the hold must have
	given    *hold         // the hold that was passed on, not yet taken; set before ready is closed
	pause    time.Duration // the pause before its request, for polling processes to get the key
	// placed is made when the waiter is woken to ask the store as the head. It is
	// closed after the store's busy answer, with which the waiter usually gets a place
	// in the store's list. It is also closed when the waiter leaves the queue.
	placed chan struct{}
}

// passing is the part of a hold's state that concerns passing on.
type passing struct {
	barred    bool  // the hold must not be passed on any more
	shown     bool  // a caller has got the hold's owner, and may join the hold
	releasing bool  // the release of a hold that was passed on has begun, and will answer next
	passes    uint8 // the number of times that the hold was passed on

	asked *confirmation // the last confirmation whose call has begun
	next  *confirmation // the confirmation for callers that came after the call of asked had begun
}

// confirmation is one call that asks the store whether a hold still exists. Several
// callers, each with a lease that has passed the hold on, can wait for the answer. Only
// one such call for a hold is in flight at a time:
//
//	a caller           waits for the answer to the next call (passing.next)
//	its first caller   makes the next call when the call before it (passing.asked) returns
//	the answer "lost"  is also the answer for the callers of passing.next
//	a missing answer   concerns only the callers of that call; passing.next asks again
//	the release        replaces the next call: its answer is for the callers of passing.next
//	                   and for all later ones
type confirmation struct {
	done chan struct{} // closed when err is known
	err  error

	// assumed means that the success of a release is inferred: the store no longer had
	// the hold. Either an earlier attempt of the release had an unknown outcome, or the
	// hold could have expired. The hold may nevertheless have been lost before the
	// release.
	assumed bool
}

// answer gives err to the callers that wait for c. It does nothing if c is nil.
func (c *confirmation) answer(err error, assumed bool) {
	if c != nil {
		c.err, c.assumed = err, assumed
		close(c.done)
	}
}

func (w *waiter) fits(h *hold) bool {
	return w.accepts && w.ttl == h.ttl && w.minToken <= h.token
}

func (w *waiter) takeGiven() *hold {
	h := w.given
	w.given = nil
	return h
}

// notePlaced lets a release continue that waits until w has asked the store.
func (w *waiter) notePlaced() {
	if w.placed != nil {
		close(w.placed)
		w.placed = nil
	}
}

// wakeToAsk makes the head ask the store. The head is a waiter that was parked, or that
// has just become the head.
func (q *queue) wakeToAsk() {
	q.parked = false
	w := q.head()
	w.placed = make(chan struct{})
	close(w.ready)
}

// park parks the head of q if possible, and reports whether the head is parked. A
// parked head waits for the hold of this process instead of asking the store. A head
// with tryOnly is never parked. If waiters can be woken, the head is parked only for a
// hold that fits and may be passed on. When the hold may no longer be passed on, the
// head asks the store, and gets a place in the store's list. If waiters cannot be
// woken, the head is parked for any hold, until the hold is passed on or released. An
// earlier request would give this head no place in the store's list, unless its claim
// is fair.
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

// awaitPass reports whether h, the hold of q, may still be passed on. If so, it starts
// a timer, which unparks the head when h may no longer be passed on.
func (ws *waiters) awaitPass(q *queue, h *hold) bool {
	left := h.passTimeLeft()
	if left > 0 && !q.timed {
		q.timed = true
		time.AfterFunc(left, func() { ws.unpark(h) })
	}
	return left > 0
}

// unpark makes the head that is parked for h ask the store, because h is no longer
// passed on. If waiters cannot be woken, the head stays parked until h is released.
func (ws *waiters) unpark(h *hold) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.queueOf(h); q != nil && q.parked && ws.wakeable.Load() {
		q.wakeToAsk()
	}
}

// noteHold records in q that its head leaves with the hold h. If h is nil or retired,
// q keeps the hold that it has.
func (ws *waiters) noteHold(q *queue, h *hold) {
	q.parked = false
	if h != nil && !h.isRetired() { // awaitPass and pass check the trust in it
		q.timed = q.timed && q.hold == h
		q.hold = h
		ws.turns.noteGrant(h.key)
	}
}

// moveOn gives next the hold of q, which its head was given and has not taken. moveOn
// reports whether next has it. Otherwise q has no hold any more, and the caller has to
// release given. A waiter that is given a hold is exclusive, so no other waiter asks
// beside it, and next.ready is still open.
func (ws *waiters) moveOn(q *queue, given *hold, next *waiter) bool {
	if next == nil || !next.fits(given) || !given.mayMoveOn() || ws.closing.Err() != nil {
		q.hold = nil
		return false
	}
	next.given = given
	close(next.ready)
	return true
}

// passOn passes h, the hold of a lease that is being released, on to the parked head.
// It does so if willing is true, the head accepts h, and h may be passed on. After the
// beginning of Close it passes nothing on. If passOn does not pass h on, the caller has
// to release h. Before the release, the head asks the store for a place in the store's
// list. placed is closed when the store has answered the head, and is nil if no head
// asks. If waiters cannot be woken, a parked head stays parked, and passOn returns
// parked as true. The caller then has to call holdEnded after the release of h.
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

// holdEnded removes h from its queue after a release or a loss, or before a release in
// the background. A parked head then asks the store. If waiters cannot be woken, the
// head first pauses for half of the hold's age, and for at most half of passTime.
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
		// In the pause, polling processes can get the key.
		q.head().pause = min(now.Since(h.arrived), passTime) / 2
		q.wakeToAsk()
	}
	ws.dropEmpty(h.key, q)
}

// passable returns the lease's hold if the hold can be passed on, or nil. The lease
// must have usual terms, be no lease of a run, and have a single hold that has joined
// no other hold. No request of the lease's acquire may have an unknown outcome.
func (l *Lease) passable() *hold {
	if !l.opts.usual || l.opts.record != nil || len(l.holds) != 1 || l.unsure[l.key] {
		return nil
	}
	if h := l.holds[0]; h.owner == h.id {
		return h
	}
	return nil
}

// passOrRelease passes the lease's hold on to a waiter of this process, or releases the
// lease's holds. The time now is the beginning of the lease's end.
func (l *Lease) passOrRelease(ctx context.Context, r *store.Record, now clock.Moment) error {
	h, until := l.passable(), now.Time().Add(releaseLimit)
	if h == nil {
		return l.releaseHolds(r, until)
	}
	ws := &l.engine.waiters
	passed, placed, parked := ws.passOn(h, !l.tooOld(now))
	if passed {
		l.engine.observe(ctx, l.event(PassedOn))
		return h.askStore(until)
	}
	if parked {
		defer ws.holdEnded(h) // after the release, so that the head finds the key free
	}
	if placed != nil {
		// The release waits until the waiter has a place in the store's list, which
		// keeps the order among processes. The wait is short compared with the
		// remaining trust, because the hold is no longer extended.
		rest := h.remaining(l.engine.now())
		h.retire()
		select {
		case <-placed:
		case <-time.After(min(askTime, rest/4)):
		}
	}
	return l.releaseHolds(r, until)
}

// passTimeLeft returns the time for which the hold may still be passed on, or 0. Other
// conditions of pass can nevertheless forbid this.
func (h *hold) passTimeLeft() time.Duration {
	now := h.keeper.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passExpired(now) || h.tokensUsed() {
		return 0
	}
	return passTime - now.Since(h.arrived)
}

// pass takes the hold from its lease, which is being released, and returns true. If the
// hold may not be passed on, pass returns false and the hold stays with its lease.
// Passing on is not allowed
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

// show records that a caller of l gets the owner of the hold, and may join the hold. It
// returns false if l no longer has the hold.
func (h *hold) show(l notices) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lease != l {
		return false
	}
	h.passing.shown = true
	return true
}

// giveTo makes l the lease of the hold, and returns the number of times that the hold
// was passed on. If the hold is lost or no longer trusted, giveTo changes nothing and
// returns false.
func (h *hold) giveTo(l notices, now clock.Moment) (passes uint8, trusted bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trustLeft(now) == 0 {
		return 0, false
	}
	h.lease = l
	return h.passing.passes, true
}

// mayMoveOn reports whether the hold of a waiter that has left the queue may go to
// another waiter. It does not repeat the checks of pass for shown owners, Lease.Extend
// and tokens, because no lease has had the hold since then.
func (h *hold) mayMoveOn() bool {
	now := h.keeper.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.passExpired(now) && !h.unconfirmed(now)
}

// passExpired reports whether the hold is barred, no longer trusted or at least
// passTime old. The caller holds the mutex.
func (h *hold) passExpired(now clock.Moment) bool {
	return h.passing.barred || h.trustLeft(now) == 0 || now.Since(h.arrived) >= passTime
}

// tokensUsed reports whether no token is left for another lease. The caller holds the
// mutex.
func (h *hold) tokensUsed() bool { return h.passing.passes >= store.TokenStep-1 }

// unconfirmed reports whether the store's last confirmation is too old to pass the hold
// on. The caller holds the mutex.
func (h *hold) unconfirmed(now clock.Moment) bool {
	return now.Since(h.from) > min(passTime, h.valid/50)
}

// askStore asks the store whether the hold still exists, for a lease that has passed
// the hold on. Callers that come while such a call is in flight share the next call, or
// the answer to the hold's release. askStore returns nil, ErrLost, or the reason for a
// missing answer. After an error the hold is no longer passed on.
func (h *hold) askStore(until time.Time) (err error) {
	c, asks := h.confirmation()
	if !asks {
		<-c.done
		return c.err
	}
	err = errPanicked // stays if the store panics
	defer func() { err = h.confirmAnswered(c, err) }()
	return h.keeper.persist(h.ttl, until, func(ctx context.Context) error {
		_, answers := h.keeper.extendHolds(ctx, budget(h.ttl), 0, []*hold{h})
		return answers[0].Err
	})
}

// confirmation returns the confirmation for the caller. asks reports whether the caller
// has to make the call to the store.
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
	runtime.Gosched() // lets other leases that are being released share the call
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

// confirmAnswered gives err, the result of c's call, to the callers of c, and returns
// err. If the hold is lost, the callers that came later get ErrLost too. Another call
// could only have the same result or no answer. If the hold's release has begun, the
// result of the release can replace err.
func (h *hold) confirmAnswered(c *confirmation, err error) error {
	lost := errors.Is(err, ErrLost)
	h.mu.Lock()
	next, ending := h.passing.next, h.passing.releasing
	final := lost && !ending // without a release of the hold, the answer "lost" means a loss
	if final {
		h.passing.next = nil
	}
	h.passing.barred = h.passing.barred || err != nil
	h.mu.Unlock()
	if lost && ending {
		// The hold's release has begun, and may have reached the store first. To wait
		// for its answer is safe, because a release does not wait for a confirmation.
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

// beginRelease records that the hold is about to be released. It returns a
// confirmation, whose present and later callers get the answer to the release. It
// returns nil if the hold was never passed on, so that there are no such callers. It
// also returns nil if an earlier release has answered the callers.
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
