package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/due"
	"github.com/lockkit/lockkit/core/internal/order"
)

// passTime bounds the time after its grant in which a hold is passed on, and the age of
// its last confirmation then.
const passTime = 10 * time.Millisecond

// hold is one grant of a key at the store, and the lease that has it. What happens at
// the store happens to a hold: it is extended, confirmed, passed on to another lease of
// this process, lost and released. DESIGN.md draws its states; mutexes.go has the
// order of the mutexes.
type hold struct {
	locker        *Locker
	key           string // the claim as it was granted
	owner, id     string
	weight, limit int64
	ttl           time.Duration
	token         uint64       // of the grant; each lease has this one plus its tokenOffset
	arrived       clock.Moment // when the grant had arrived

	mu      order.Mutex[holdRank]
	lease   *Lease        // has the hold; nil between two leases
	from    clock.Moment  // when the last confirmed call began,
	valid   time.Duration // and how long the hold lasts from then on
	reach   time.Duration // how long after arrived the store may have it because of Lease.Extend; 0 without that
	noPass  bool          // it is not passed on any more
	timed   bool          // a timer calls waiters.unpark when its time to be passed on is over
	retired bool          // it is lost, or about to be released: it is not extended or trusted any more
	passes  uint8         // how many leases have had it before this one
	ending  bool          // its release has begun, and answers next

	asked *confirmation // the last one for which the store was asked
	next  *confirmation // for callers that came after that

	// Under the watchdog's mutex.
	early time.Duration    // how much before it is due the watchdog may look at it
	entry *due.Entry[hold] // in the watchdog's queue; nil if not in it
}

// claim is the claim that extends the hold.
func (h *hold) claim() Claim {
	return Claim{Key: h.key, Owner: h.owner, Lease: h.id, Weight: h.weight, Limit: h.limit, TTL: h.ttl}
}

// trust is the part of a validity on which a holder relies. The margin covers clocks
// that run at different rates and a timer that fires late on a busy machine.
func trust(valid time.Duration) time.Duration {
	return valid - valid/20 - 2*time.Millisecond
}

// remaining is how long this process relies on the hold from now on, 0 at least. It is 0
// if the hold was lost or retired.
func (h *hold) remaining(now clock.Moment) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trustLeft(now)
}

// trustLeft is remaining for callers that hold the mutex.
func (h *hold) trustLeft(now clock.Moment) time.Duration {
	if h.retired {
		return 0
	}
	return max(0, trust(h.valid)-now.Since(h.from))
}

// expired reports whether the hold can have expired at the store since it was last
// confirmed.
func (h *hold) expired(now clock.Moment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Since(h.from) >= h.valid
}

// holder is the lease that has the hold, nil between two leases.
func (h *hold) holder() *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

// lose ends the trust in the hold, which is lost, and tells the lease that has it.
func (h *hold) lose() {
	h.retire()
	if lease := h.holder(); lease != nil {
		lease.lose()
	}
}

// confirm notes that the store extended the hold by a call that began at start.
// It never shortens the trust, and an answer that comes after the end of the trust revives
// nothing.
func (h *hold) confirm(start clock.Moment, valid time.Duration) {
	now := h.locker.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	before, left := h.trustLeft(now), trust(valid)-now.Since(start)
	if before > 0 && left > before {
		h.from, h.valid = start, valid
	}
}

// retire ends the extensions of the hold, which is lost or about to be released.
func (h *hold) retire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retired = true
	h.locker.watchdog.remove(h)
}

// awaitPass reports whether the head can be parked for the hold, since that may still be
// passed on; pass decides whether it is. A timer calls ws.unpark when the time for it is
// over.
func (h *hold) awaitPass(ws *waiters) bool {
	now := h.locker.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.passExpired(now) || h.tokensUsed() {
		return false
	}
	if !h.timed {
		h.timed = true
		time.AfterFunc(passTime-now.Since(h.arrived), func() { ws.unpark(h) })
	}
	return true
}

// passExpired reports whether the time in which the hold may be passed on is over, or it is
// not trusted any more or barred from that. The caller holds the mutex.
func (h *hold) passExpired(now clock.Moment) bool {
	return h.noPass || h.trustLeft(now) == 0 || now.Since(h.arrived) >= passTime
}

// tokensUsed reports whether no token is left for another lease. The caller holds the mutex.
func (h *hold) tokensUsed() bool { return h.passes >= TokenStep-1 }

// unconfirmed reports whether the last confirmation is too old to pass the hold on. The
// caller holds the mutex.
func (h *hold) unconfirmed(now clock.Moment) bool {
	return now.Since(h.from) > min(passTime, h.valid/50)
}

// mayMoveOn reports whether the hold may go to another waiter, if the one to which it was
// passed on leaves without it. No lease has had it since pass, so what pass says of a
// lease and of the tokens still holds.
func (h *hold) mayMoveOn() bool {
	now := h.locker.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.passExpired(now) && !h.unconfirmed(now)
}

// pass takes the hold from l, which has ended, for the next lease, and reports whether
// that is allowed. It is not allowed
//   - after Owner of l was shown: a caller may join it,
//   - after l was extended by its caller, or held for longer than its MaxHold,
//   - after passTime, TokenStep leases, a loss or an unanswered confirmation,
//   - without a recent confirmation by the store.
//
// The caller holds the waiters' mutex.
func (h *hold) pass(l *Lease) bool {
	now := h.locker.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.shown || l.tooOld(now) || h.reach != 0 || h.passExpired(now) || h.tokensUsed() || h.unconfirmed(now) {
		return false
	}
	h.passes++
	h.lease, l.passed = nil, true
	return true
}

// giveTo gives l the hold that was passed on to it. It returns false if the hold is lost or
// no longer trusted.
func (h *hold) giveTo(l *Lease) bool {
	now := h.locker.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.trustLeft(now) == 0 {
		return false
	}
	h.lease = l
	l.holds = append(l.one[:0], h)
	l.since, l.tokenOffset = now, h.passes
	return true
}

// confirmation is one call that asks whether the store has the hold, and the callers that
// wait for its answer. One call is under way at a time:
//
//	a caller           waits for the next call: hold.next
//	the first of them  makes it, when the one before it (hold.asked) is answered
//	answer "lost"      is the answer of hold.next too
//	no answer          is that of these callers only; hold.next asks again
//	the release        is the next call of hold.next, and of all callers after it
type confirmation struct {
	done chan struct{} // closed when err is known
	err  error

	// assumed is set for a release that was sent twice: the first had no answer, and the
	// second found nothing. Then err is nil, since the first probably ended the hold. That
	// is a guess: it may have been lost before.
	assumed bool
}

// errNoEnd is the answer to callers that wait for a call that has panicked.
var errNoEnd = errors.New("the call did not come to its end")

// answer gives the waiting callers err. A nil confirmation has none.
func (c *confirmation) answer(err error, assumed bool) {
	if c != nil {
		c.err, c.assumed = err, assumed
		close(c.done)
	}
}

// confirmed asks the store whether it has the hold, for a lease that has passed it on.
// Callers that come while the store is being asked share the next call, or the release
// of the hold. It returns nil, ErrLost, or the reason why there is no answer. After an
// error the hold is not passed on any more.
func (h *hold) confirmed(until time.Time) (err error) {
	c, asks := h.confirmation()
	if !asks {
		<-c.done
		return c.err
	}
	err = errNoEnd // stays if the store panics
	defer func() { err = h.confirmAnswered(c, err) }()
	return h.locker.persist(h.ttl, until, func(ctx context.Context) error {
		_, answers := h.locker.extend(ctx, budget(h.ttl), 0, []*hold{h})
		return answers[0].Err
	})
}

// confirmation returns the confirmation that a caller shares, and whether the caller is to
// ask the store for it.
func (h *hold) confirmation() (c *confirmation, asks bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next != nil {
		return h.next, false
	}
	c = &confirmation{done: make(chan struct{})}
	before := h.asked
	h.next = c
	h.mu.Unlock()
	runtime.Gosched() // those that are about to pass it on share the call, or release it
	if before != nil {
		select {
		case <-before.done:
		case <-c.done: // the release has come first
		}
	}
	h.mu.Lock()
	if h.next != c || h.ending {
		return c, false // a loss or the release answers it
	}
	h.asked, h.next = c, nil
	return c, true
}

// confirmAnswered gives the callers of c the store's answer. After a loss the callers that
// came later have the same answer: the next call could only say the same, or have no
// answer. It returns the answer for the caller that has asked.
func (h *hold) confirmAnswered(c *confirmation, err error) error {
	lost := errors.Is(err, ErrLost)
	h.mu.Lock()
	next, ending := h.next, h.ending
	final := lost && !ending // no release is under way that may have ended it
	if final {
		h.next = nil
	}
	h.noPass = h.noPass || err != nil
	h.mu.Unlock()
	if lost && ending {
		// Its release was under way and has perhaps come first. A release waits for no
		// confirmation, so this wait ends.
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

// noteExtend notes that the store may have the hold until end, since its caller extends
// it by Lease.Extend.
func (h *hold) noteExtend(end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reach = max(h.reach, end.Sub(h.arrived.Time()))
}

// due has the watchdog look at the hold after the pause that is counted from now on, or when
// the trust in it is over if that is sooner. If it is over now, due returns false and the
// hold is lost.
func (h *hold) due(now clock.Moment, pause func(now clock.Moment) time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	left, early := h.trustLeft(now), h.slack()
	if left == 0 {
		go h.lose() // not here: an observer is told
		return false
	}
	d := pause(now)
	if d >= left {
		d, early = left, 0
	}
	h.locker.watchdog.schedule(h, now.Time().Add(d), early)
	return true
}

// toExtend is the pause until the hold is to be extended after a confirmation: a third of
// its validity, or a little less so that holds of one moment spread. The caller holds the
// mutex.
func (h *hold) toExtend(now clock.Moment) time.Duration {
	return h.valid/3 - rand.N(h.valid/30+1) - now.Since(h.from)
}

// toRetry is the pause after a failed extension: short, but longer than the slack, since
// holds that fail together would otherwise be tried again without a pause. The caller holds
// the mutex.
func (h *hold) toRetry(clock.Moment) time.Duration { return 2*h.slack() + rand.N(h.slack()+1) }

// toEnd is a pause that is longer than the trust in any hold.
func toEnd(clock.Moment) time.Duration { return 2 * maxTTL }

// slack is how much before it is due the hold may be extended, in one call with others.
// The caller holds the mutex.
func (h *hold) slack() time.Duration { return min(h.valid/60, time.Second/2) }

// beginRelease notes that the hold is about to be released, and returns the confirmation
// that the answer to that is: all callers that wait for one get it. It is nil if the hold
// was never passed on, so that no caller waits.
func (h *hold) beginRelease() *confirmation {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.noPass = true
	if h.passes == 0 || h.ending { // a release that has panicked was answered
		return nil
	}
	h.ending = true
	if h.next == nil {
		h.next = &confirmation{done: make(chan struct{})}
	}
	return h.next
}

// release releases the hold of l, and saves r, the record of a run; nil if there is none.
// A hold that was trusted until l ended, and has expired meanwhile, is released.
// If the store does not answer until until, it returns the reason and leaves the hold to
// the clean-up. If an acquire of it had no answer the clean-up releases it again in any
// case, so that a late one is refused.
func (h *hold) release(l *Lease, r *Record, until time.Time) (err error) {
	c := l.releaseClaim(h)
	c.Record = r
	end, assumed := h.beginRelease(), false
	defer func() { end.answer(err, assumed) }()
	err = errNoEnd
	assumed, settled, err := h.locker.release(&c, until)
	if r == nil && errors.Is(err, ErrLost) && h.expired(h.locker.now()) {
		assumed, err = true, nil
	}
	if l.unsure[h.key] || !settled {
		h.locker.cleanup.add(c, l, true, nil)
	}
	return err
}

// abandon releases the hold of l in the background, or the one that was passed on to l and
// not taken.
func (h *hold) abandon(l *Lease) {
	h.locker.waiters.holdEnded(h)
	h.retire()
	h.locker.cleanup.add(l.releaseClaim(h), l, l.unsure[h.key], h.beginRelease())
}
