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

// keeper is the part that the holds of a Locker share.
type keeper struct {
	storeCalls
	events
	watchdog watchdog
	cleanup  cleanup
}

// notices is the lease that has a hold, as the hold and the watchdog see it. They reach
// nothing else above them, see layers_test.go.
type notices interface {
	// lose notifies the lease that the hold is lost.
	lose()
	// extends reports whether the hold, which is still trusted, is to be extended.
	extends(now clock.Moment) bool
	// extended notifies the lease of the answer to an extension.
	extended(err error)
}

// hold is one grant of a key at the store. It is extended, confirmed, passed on from
// lease to lease of this process, lost and released. DESIGN.md draws its states;
// mutexes.go has the order of the mutexes.
//
// The trust in a hold is from, valid and retired. grant begins it, only confirm extends
// it, and retire ends it for good. All other methods only read it.
//
// This file is the life of a hold that is never passed on. passing.go has the rest:
// what the queues of this process ask of a hold, and its own state for that. Here two
// things follow from it. For a moment no lease has the hold, and leases that have
// passed it on wait for the answer to its release.
type hold struct {
	keeper        *keeper
	key           string // the claim as it was granted
	owner, id     string
	weight, limit int64
	ttl           time.Duration
	token         uint64       // of the grant; each lease has this one plus its tokenOffset
	arrived       clock.Moment // when the grant was received

	mu      order.Mutex[holdRank]
	lease   notices       // the lease that has it; nil from pass to giveTo, while it goes to the next one
	from    clock.Moment  // when the last confirmed call began,
	valid   time.Duration // and how long the hold lasts from then on
	reach   time.Duration // how long after arrived the store may have it by Lease.Extend; 0 if that was not called
	retired bool          // it is lost, or about to be released: it is not extended or trusted any more
	passing passing       // of passing.go

	alarm alarm // of watchdog.go, under the watchdog's mutex
}

// grant makes h the hold that the store granted to c for lease, by a call that began at
// start. It reports whether h is trusted, since the answer can take longer than the
// trust lasts. No other goroutine knows h yet. The lease then schedules the watchdog's
// check of h by due.
func (h *hold) grant(k *keeper, c *store.Claim, g store.Grant, lease notices, start clock.Moment) bool {
	h.keeper, h.key, h.owner, h.weight, h.limit, h.ttl = k, c.Key, g.Owner, c.Weight, c.Limit, c.TTL
	h.token, h.lease, h.from, h.valid = g.Token, lease, start, cmp.Or(g.Valid, c.TTL)
	h.arrived = k.now()
	return h.remaining(h.arrived) > 0
}

// claim returns the claim that extends the hold.
func (h *hold) claim() store.Claim {
	return store.Claim{Key: h.key, Owner: h.owner, Lease: h.id, Weight: h.weight, Limit: h.limit, TTL: h.ttl}
}

// remaining returns how long this process may rely on the hold from now on, at least 0.
// It is 0 if the hold was lost or retired.
func (h *hold) remaining(now clock.Moment) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trustLeft(now)
}

// trustLeft returns the result of remaining, for callers that hold the mutex.
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

// leaseNow returns the lease that has the hold, or nil while the hold goes from one
// lease to the next.
func (h *hold) leaseNow() notices {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

// lose ends the trust in the hold, which is lost, and notifies the lease that has it. A
// lease that is about to take the hold finds that it is not trusted any more.
func (h *hold) lose() {
	h.retire()
	if lease := h.leaseNow(); lease != nil {
		lease.lose()
	}
}

// extendHolds asks the store once, for at most limit, to extend holds and records the
// confirmed ones. Each is extended for ttl or, if ttl is 0, for its own TTL.
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

// confirm records that the store extended the hold by a call that began at start. It
// never shortens the trust. An answer that comes after the end of the trust revives
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

// noteExtend records that the store may have the hold until end, because the caller
// extends it by Lease.Extend.
func (h *hold) noteExtend(end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reach = max(h.reach, end.Sub(h.arrived.Time()))
}

// due schedules the watchdog's next check of the hold after the pause counted from now,
// or at the end of the trust if that is earlier. It returns false if the hold is
// retired or not trusted any more. A lease that has the hold and has not released it is
// then lost.
func (h *hold) due(now clock.Moment, pause func(now clock.Moment) time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.trustLeft(now)
	if left == 0 {
		go h.lose() // in a goroutine, because the observer is notified
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

// toExtend returns the pause until the hold is to be extended after a confirmation: a
// third of its validity, or a little less, so that holds granted at one moment spread.
// The caller holds the mutex.
func (h *hold) toExtend(now clock.Moment) time.Duration {
	return h.valid/3 - rand.N(h.valid/30+1) - now.Since(h.from)
}

// toLengthen returns the pause until a hold that may have been granted by message is
// extended. It is short if less than two thirds of the hold's TTL are left: such a
// grant lasts for a second or two, and the process can be paused for that long. The
// caller holds the mutex.
func (h *hold) toLengthen(now clock.Moment) time.Duration {
	d := h.toExtend(now)
	if h.valid-now.Since(h.from) < h.ttl/3*2 {
		d = min(d, lengthenAfter)
	}
	return d
}

// toRetry returns the pause after a failed extension. It is short, but longer than the
// slack: otherwise holds that fail together would be tried again without a pause. The
// caller holds the mutex.
func (h *hold) toRetry(clock.Moment) time.Duration {
	s := slack(h.valid)
	return 2*s + rand.N(s+1)
}

// toEnd returns a pause that is longer than the trust in any hold.
func toEnd(clock.Moment) time.Duration { return 2 * maxTTL }

// releaseClaim returns the claim that releases the hold. Its TTL is the time for which
// a late acquire has to be refused. Its Last is the token of the last lease that had
// the hold.
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
// in the meantime, counts as released. If the store has not answered by until, release
// returns the reason and leaves the hold to the cleanup. If an acquire of the hold had
// no answer (unsure), the cleanup releases it again in any case, so that a late acquire
// is refused. Leases that have passed the hold on, and wait to know whether the store
// had it, get the same answer.
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

// abandon releases the hold by c in the background. Leases that have passed it on, and
// wait, get the answer to the first try.
func (h *hold) abandon(c releasing, unsure bool) {
	h.retire()
	end := h.beginRelease()
	h.keeper.cleanup.add(c, unsure, func(err error) { end.answer(err, false) })
}
