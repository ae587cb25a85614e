package core

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/core/store"
)

// keeper is what the holds of a Locker share.
type keeper struct {
	storeCalls
	events
	watchdog watchdog
	cleanup  cleanup
}

// notices is the lease that has a hold, as the hold and the watchdog see it. They reach nothing
// else above them, see layers_test.go.
type notices interface {
	// lose notifies the lease that the hold is lost.
	lose()
	// extends reports whether the hold, of which the trust lasts, is to be extended.
	extends(now clock.Moment) bool
	// extended notifies the lease of the answer to an extension.
	extended(err error)
}

// hold is one grant of a key at the store. It is extended, confirmed, passed on from lease
// to lease of this process, lost and released. DESIGN.md draws its states; mutexes.go has
// the order of the mutexes.
//
// The trust in it is from, valid and retired: grant begins it, confirm alone makes it
// longer, and retire ends it for good. All others only read it.
//
// This file is the life of a hold that is never passed on. passing.go has what the queues of
// this process ask of it, and what it knows of that. Here two things come of it: no lease
// has the hold for a moment, and leases that have passed it on wait for the answer to its release.
type hold struct {
	keeper        *keeper
	key           string // the claim as it was granted
	owner, id     string
	weight, limit int64
	ttl           time.Duration
	token         uint64       // of the grant; each lease has this one plus its tokenOffset
	arrived       clock.Moment // when the grant had arrived

	mu      order.Mutex[holdRank]
	lease   notices       // that has the hold; nil from pass to giveTo, while it goes to the next one
	from    clock.Moment  // when the last confirmed call began,
	valid   time.Duration // and how long the hold lasts from then on
	reach   time.Duration // how long after arrived the store may have it by Lease.Extend; 0 if that was not called
	retired bool          // it is lost, or about to be released: it is not extended or trusted any more
	passing passing       // of passing.go

	alarm alarm // of watchdog.go, under the watchdog's mutex
}

// grant makes h the hold that the store has granted to c for lease, by a call that began at
// start. It reports whether h is trusted: the answer can take longer than the trust lasts.
// Nobody else knows h yet. The lease then has the watchdog look at it by due.
func (h *hold) grant(k *keeper, c *store.Claim, g store.Grant, lease notices, start clock.Moment) bool {
	h.keeper, h.key, h.owner, h.weight, h.limit, h.ttl = k, c.Key, g.Owner, c.Weight, c.Limit, c.TTL
	h.token, h.lease, h.from, h.valid = g.Token, lease, start, cmp.Or(g.Valid, c.TTL)
	h.arrived = k.now()
	return h.remaining(h.arrived) > 0
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

// leaseNow returns the lease that has the hold, nil while it goes from one to the next.
func (h *hold) leaseNow() notices {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

// lose ends the trust in the hold, which is lost, and notifies the lease that has it. One that
// is about to have it finds the trust at its end.
func (h *hold) lose() {
	h.retire()
	if lease := h.leaseNow(); lease != nil {
		lease.lose()
	}
}

// extendHolds asks the store once, for limit at most, to extend holds, each for ttl or, if that
// is 0, for its own TTL, and notes what it confirms.
func (k *keeper) extendHolds(ctx context.Context, limit, ttl time.Duration, holds []*hold) (start clock.Moment, answers []store.Extension) {
	claims := make([]store.Claim, len(holds))
	for i, h := range holds {
		claims[i] = h.claim()
		claims[i].TTL = cmp.Or(ttl, h.ttl)
	}
	start, answers = k.storeCalls.extend(ctx, limit, claims)
	for i, h := range holds {
		if x := answers[i]; x.Err == nil {
			h.confirm(start, x.Valid)
		}
	}
	return start, answers
}

// confirm notes that the store extended the hold by a call that began at start.
// It never shortens the trust, and an answer that comes after the end of the trust revives
// nothing.
func (h *hold) confirm(start clock.Moment, valid time.Duration) {
	now := h.keeper.now()
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
	h.keeper.watchdog.remove(h)
}

// noteExtend notes that the store may have the hold until end, since its caller extends
// it by Lease.Extend.
func (h *hold) noteExtend(end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reach = max(h.reach, end.Sub(h.arrived.Time()))
}

// due has the watchdog look at the hold after the pause that is counted from now on, or when
// the trust in it is over if that is sooner. If it is over now, or the hold is retired, due
// returns false. A lease that has the hold and has not released it is then lost.
func (h *hold) due(now clock.Moment, pause func(now clock.Moment) time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.trustLeft(now)
	if left == 0 {
		go h.lose() // not here: the observer is notified
		return false
	}
	d := pause(now)
	early := min(slack(h.valid), max(d, 0)/2)
	if d >= left {
		d, early = left, 0
	}
	h.keeper.watchdog.schedule(h, now.Time().Add(d), early)
	return true
}

// toExtend is the pause until the hold is to be extended after a confirmation: a third of
// its validity, or a little less so that holds of one moment spread. The caller holds the
// mutex.
func (h *hold) toExtend(now clock.Moment) time.Duration {
	return h.valid/3 - rand.N(h.valid/30+1) - now.Since(h.from)
}

// toLengthen is the pause until a hold that may have been granted by message is extended. It
// is short if less than two thirds of the hold's TTL are left: such a grant lasts for a second
// or two, which a pause of the process can take. The caller holds the mutex.
func (h *hold) toLengthen(now clock.Moment) time.Duration {
	d := h.toExtend(now)
	if h.valid-now.Since(h.from) < h.ttl/3*2 {
		d = min(d, lengthenAfter)
	}
	return d
}

// toRetry is the pause after a failed extension: short, but longer than the slack, since
// holds that fail together would otherwise be tried again without a pause. The caller holds
// the mutex.
func (h *hold) toRetry(clock.Moment) time.Duration {
	s := slack(h.valid)
	return 2*s + rand.N(s+1)
}

// toEnd is a pause that is longer than the trust in any hold.
func toEnd(clock.Moment) time.Duration { return 2 * maxTTL }

// releaseClaim returns the claim that releases the hold. Its TTL is how long a late acquire
// of it has to be refused, and its Last the token of the last lease that has had the hold.
func (h *hold) releaseClaim() store.Claim {
	c := h.claim()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owner == h.id && h.token > 0 { // a hold that joined has the token of another one
		c.Last = h.token + uint64(h.passing.passes)
	}
	if left := time.Until(h.arrived.Time().Add(h.reach)); left > c.TTL {
		c.TTL = left - left%time.Millisecond
	}
	return c
}

// release releases the hold by c. A hold that was trusted until then, and has expired
// meanwhile, is released. If the store does not answer until until, it returns the reason
// and leaves the hold to the cleanup. If an acquire of it had no answer (unsure), the
// cleanup releases it again in any case, so that a late one is refused. Leases that have passed
// the hold on, and wait to know whether the store had it, get the same answer.
func (h *hold) release(c releasing, unsure bool, until time.Time) (err error) {
	plain := c.Record == nil
	end, assumed := h.beginRelease(), false
	defer func() { end.answer(err, assumed) }()
	err = errNoEnd
	assumed, settled, err := h.keeper.release(&c, until)
	if plain && errors.Is(err, ErrLost) && h.expired(h.keeper.now()) {
		assumed, err = true, nil
	}
	if unsure || !settled {
		h.keeper.cleanup.add(c, true, func(error) {})
	}
	return err
}

// abandon releases the hold by c in the background. Leases that have passed it on, and wait,
// get the answer to the first try.
func (h *hold) abandon(c releasing, unsure bool) {
	h.retire()
	end := h.beginRelease()
	h.keeper.cleanup.add(c, unsure, func(err error) { end.answer(err, false) })
}
