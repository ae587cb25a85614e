package core

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/due"
	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/core/store"
)

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
	retired bool          // it is lost, or about to be released: it is not extended or trusted any more
	passing passing       // of passing.go

	// Under the watchdog's mutex.
	early time.Duration    // how much before it is due the watchdog may look at it
	entry *due.Entry[hold] // in the watchdog's queue; nil if not in it
}

// claim is the claim that extends the hold.
func (h *hold) claim() store.Claim {
	return store.Claim{Key: h.key, Owner: h.owner, Lease: h.id, Weight: h.weight, Limit: h.limit, TTL: h.ttl}
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

// release releases the hold of l, and saves r, the record of a run; nil if there is none.
// A hold that was trusted until l ended, and has expired meanwhile, is released.
// If the store does not answer until until, it returns the reason and leaves the hold to
// the clean-up. If an acquire of it had no answer the clean-up releases it again in any
// case, so that a late one is refused.
func (h *hold) release(l *Lease, r *store.Record, until time.Time) (err error) {
	c := l.releaseClaim(h, r)
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
	h.locker.cleanup.add(l.releaseClaim(h, nil), l, l.unsure[h.key], h.beginRelease())
}
