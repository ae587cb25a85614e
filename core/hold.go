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

// keeper is the part of a Locker that all its holds share.
type keeper struct {
	storeCalls
	events
	watchdog watchdog
	cleanup  cleanup
}

// notices is the interface of a lease for its holds and for the watchdog. Holds and the
// watchdog use nothing else of a lease, see layers_test.go.
type notices interface {
	// lose notifies the lease that the hold is lost.
	lose()
	// extends reports whether the watchdog has to extend the hold, which is still
	// trusted. It may find that the lease is lost or overruns, and then notifies the
	// observer.
	extends(now clock.Moment) bool
	// extended notifies the lease of the result of an extension.
	extended(err error)
}

// hold is one grant of a key at the store. A hold can be extended, confirmed, passed on
// from lease to lease of this process, lost and released. DESIGN.md has a diagram of
// its states, and mutexes.go the order of the mutexes.
//
// The fields from, valid and retired determine the trust in a hold. grant begins the
// trust, and retire ends the trust for good. Only confirm extends the trust. All other
// methods only read these fields.
//
// A revoke is noticed at the next extension (watchdog.answered).
//
// This file has the methods that every hold needs. passing.go has the methods and the
// state for passing on. Passing on affects this file in two ways. While a hold goes
// from one lease to the next, no lease has the hold. Leases that have passed a hold on
// can wait for the answer to the hold's release.
type hold struct {
	keeper        *keeper
	key           string // this and the next three lines: the claim as it was granted
	owner, id     string
	weight, limit int64
	ttl           time.Duration
	token         uint64       // the grant's token; a lease adds its tokenOffset
	arrived       clock.Moment // the time at which the grant was received

	mu      order.Mutex[holdRank]
	lease   notices       // the lease with the hold; nil from pass to giveTo, between two leases
	from    clock.Moment  // the start of the confirmed call with the longest trust
	valid   time.Duration // the time for which the hold lasts, counted from the field from
	reach   time.Duration // the store may have the hold until arrived+reach; 0 without Lease.Extend
	retired bool          // lost or about to be released: no longer extended or trusted
	passing passing       // see passing.go

	alarm alarm // see watchdog.go; guarded by the watchdog's mutex
}

// grant initializes h as the hold of lease. The store granted the hold to c in a call
// that began at start. grant returns false if the answer came after the end of the
// trust. grant writes without the mutex, because no other goroutine knows h yet. The
// lease then calls due to schedule the watchdog's check of h.
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

// remaining returns the time from now until the end of the trust. It returns 0 after
// that, and for a retired hold.
func (h *hold) remaining(now clock.Moment) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trustLeft(now)
}

// isRetired reports whether the hold is lost or about to be released.
func (h *hold) isRetired() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.retired
}

// trustLeft implements remaining for callers that hold the mutex.
func (h *hold) trustLeft(now clock.Moment) time.Duration {
	if h.retired {
		return 0
	}
	return max(0, trust(h.valid)-now.Since(h.from))
}

// expired reports whether the hold can have expired at the store. This is so when its
// validity has passed since the start of the confirmed call with the longest trust.
func (h *hold) expired(now clock.Moment) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Since(h.from) >= h.valid
}

// leaseNow returns the lease that has the hold, or nil between two leases.
func (h *hold) leaseNow() notices {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

// lose ends the trust in the lost hold, and notifies the lease that has the hold. A
// lease that is about to take the hold finds that the hold is no longer trusted. A lease
// whose Commit may have saved the record stays held (Lease.lose), without trust.
func (h *hold) lose() {
	h.retire()
	if lease := h.leaseNow(); lease != nil {
		lease.lose()
	}
}

// extendHolds asks the store once to extend holds, and records each confirmed
// extension. It waits for the answers for at most limit. Each hold is extended for ttl
// or, if ttl is 0, for its own TTL. The result start is the time at which the call
// began.
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

// confirm records that the store extended the hold for the duration valid in a call
// that began at start. It never shortens the trust. An answer after the end of the
// trust does not restore the trust.
func (h *hold) confirm(start clock.Moment, valid time.Duration) {
	now := h.keeper.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	before, left := h.trustLeft(now), trust(valid)-now.Since(start)
	if before > 0 && left > before {
		h.from, h.valid = start, valid
	}
}

// retire ends the trust in a hold that is lost or about to be released. It also stops
// the hold's extensions.
func (h *hold) retire() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retired = true
	h.keeper.watchdog.remove(h)
}

// noteExtend records that the store may have the hold until end, because of
// Lease.Extend.
func (h *hold) noteExtend(end time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reach = max(h.reach, end.Sub(h.arrived.Time()))
}

// due schedules the watchdog's next check of the hold after the pause counted from now,
// or at the end of the trust if that is earlier. If the hold is retired or no longer
// trusted, due calls lose and returns false.
func (h *hold) due(now clock.Moment, pause func(now clock.Moment) time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.trustLeft(now)
	if left == 0 {
		go h.lose() // in a goroutine, because lose notifies the observer, and a mutex is held here
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

// toExtend returns the pause from now until the next extension, which is due a third of
// the validity after the start of the last confirmed call. The pause is shorter by a
// random time of up to a thirtieth of the validity. So the extensions of holds that
// were granted together are spread. The caller holds the mutex.
func (h *hold) toExtend(now clock.Moment) time.Duration {
	return h.valid/3 - rand.N(h.valid/30+1) - now.Since(h.from)
}

// toLengthen returns the pause before the first extension of a hold that may have been
// granted by message (store.Claim.Push). If less than two thirds of the hold's TTL are
// left, the pause is at most lengthenAfter. Such a grant lasts for a second or two, and
// a process can be paused for that long. The caller holds the mutex.
func (h *hold) toLengthen(now clock.Moment) time.Duration {
	d := h.toExtend(now)
	if h.valid-now.Since(h.from) < h.ttl/3*2 {
		d = min(d, lengthenAfter)
	}
	return d
}

// toRetry returns the pause after a failed extension. The pause is longer than the
// slack, because the watchdog may extend the hold up to the slack earlier. The caller
// holds the mutex.
func (h *hold) toRetry(clock.Moment) time.Duration {
	s := slack(h.valid)
	return 2*s + rand.N(s+1)
}

// toEnd returns a pause that is longer than the trust in any hold.
func toEnd(clock.Moment) time.Duration { return 2 * maxTTL }

// releaseClaim returns the claim that releases the hold. For the claim's TTL the store
// has to refuse an acquire that arrives after the release. The claim's Last is the
// token of the last lease that had the hold.
func (h *hold) releaseClaim() store.Claim {
	c := h.claim()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owner == h.id && h.token > 0 { // a joined token belongs to the owner's hold
		c.Last = h.token + uint64(h.passing.passes)
	}
	if h.reach > 0 {
		if left := time.Until(h.arrived.Time().Add(h.reach)); left > c.TTL {
			c.TTL = left - left%time.Millisecond
		}
	}
	return c
}

// release releases the hold with c. Without a record in c, the answer ErrLost counts as
// a release if the hold can have expired by the end of the release. If the store has
// not answered by the time until, release returns the reason and leaves the hold to the
// cleanup. unsure means that an acquire of the hold had an unknown outcome. The cleanup
// then releases it again in any case, so that a late acquire is refused. Leases that
// have passed the hold on and wait for a confirmation get the same result.
func (h *hold) release(c releasing, unsure bool, until time.Time) (err error) {
	plain, assumed, settled := c.Record == nil, false, false
	err = errPanicked // stays if the store panics
	askers := h.beginRelease()
	defer func() { askers.answer(err, assumed) }()
	assumed, settled, err = h.keeper.release(&c, until)
	if plain && errors.Is(err, ErrLost) && h.expired(h.keeper.now()) {
		assumed, err = true, nil
	}
	if unsure || !settled {
		h.keeper.cleanup.add(c, true, func(error) {})
	}
	return err
}

// abandon releases the hold with c in the background. Leases that have passed the hold
// on and wait for a confirmation get the result of the cleanup's first try.
func (h *hold) abandon(c releasing, unsure bool) {
	h.retire()
	askers := h.beginRelease()
	h.keeper.cleanup.add(c, unsure, func(err error) { askers.answer(err, false) })
}
