package memstore

import (
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
)

// entry is the state of one key. Its holds and waiters are those that had not ended at now,
// the moment of the last expire.
type entry struct {
	now    time.Time
	holds  map[string]*hold     // by lease
	kept   []hold               // released with Keep: they have no owner, but still count
	places []place              // waiting claims in order of arrival
	tombs  map[string]time.Time // tombstones: leases to refuse, and the time until which to refuse them
	token  uint64               // first token of the last grant, which also has the core.TokenStep-1 after it
	record *record
}

type hold struct {
	owner  string
	weight int64
	since  time.Time
	until  time.Time
}

type place struct {
	claim core.Claim
	since time.Time
	until time.Time
}

func newEntry() *entry {
	return &entry{holds: make(map[string]*hold), tombs: make(map[string]time.Time)}
}

// acquire admits or refuses c, as core.Store.Acquire does.
func (e *entry) acquire(c core.Claim) (core.Grant, error) {
	if e.answers(c) {
		return core.Grant{Owner: c.Owner, Record: e.recorded(c)}, nil
	}
	if h := e.holds[c.Lease]; h != nil {
		h.until = later(h.until, e.now.Add(c.TTL))
		if e.record == nil {
			e.begin(c)
		}
		return core.Grant{Owner: h.owner, Token: e.fence(c, true), Record: e.recorded(c)}, nil
	}
	if _, dead := e.tombs[c.Lease]; dead {
		return core.Grant{}, core.ErrLost
	}
	owner, heaviest := e.join(c)
	if heaviest > 0 && c.Weight > heaviest {
		return core.Grant{}, core.ErrInvalid
	}
	if free, ok := e.room(c); !ok {
		busy := &core.BusyError{Key: c.Key, RetryAfter: free.Sub(e.now)}
		if c.Wait {
			e.remember(c)
			busy.Waiting = len(e.places)
		}
		return core.Grant{}, busy
	}
	e.leave(c.Lease)
	e.begin(c)
	token := e.fence(c, heaviest == core.All)
	e.holds[c.Lease] = &hold{owner: owner, weight: c.Weight, since: e.now, until: e.now.Add(c.TTL)}
	return core.Grant{Owner: owner, Token: token, Record: e.recorded(c)}, nil
}

// extend extends the hold of c, as core.Store.Extend does for one claim.
func (e *entry) extend(c core.Claim) error {
	h := e.holds[c.Lease]
	if h == nil {
		return core.ErrLost
	}
	h.until = later(h.until, e.now.Add(c.TTL))
	return nil
}

// release ends the hold of c, as core.Store.Release does.
func (e *entry) release(c core.Claim) error {
	if c.Undo && c.Record == nil {
		e.undo(c.Lease)
	}
	h := e.holds[c.Lease]
	if h == nil {
		if e.saved(c) {
			return nil
		}
		if c.Record != nil && e.record != nil && e.record.beginner == c.Lease {
			e.leave(c.Lease)
			e.saveFor(c)
			return nil
		}
		// A claim that waits gets a tombstone too: its Acquire may have been sent
		// again and still be on the way.
		e.tombs[c.Lease] = later(e.tombs[c.Lease], e.now.Add(c.TTL))
		if e.leave(c.Lease) && c.Record == nil {
			return nil
		}
		return core.ErrLost
	}
	delete(e.holds, c.Lease)
	if c.Keep > 0 {
		e.kept = append(e.kept, hold{weight: h.weight, since: e.now, until: e.now.Add(c.Keep)})
	}
	if c.Record != nil {
		e.saveFor(c)
	}
	return nil
}

// join returns the owner that the hold of c would belong to, and the weight of the heaviest
// hold that the owner has, or 0.
func (e *entry) join(c core.Claim) (owner string, heaviest int64) {
	if c.Via != "" {
		if w := e.heaviest(c.Via); w > 0 {
			return c.Via, w
		}
	}
	return c.Owner, e.heaviest(c.Owner)
}

func (e *entry) heaviest(owner string) int64 {
	var w int64
	for _, h := range e.holds {
		if h.owner == owner {
			w = max(w, h.weight)
		}
	}
	return w
}

// room is the admission rule. If c does not fit, free is the earliest end of the holds and
// places that keep it out.
func (e *entry) room(c core.Claim) (free time.Time, ok bool) {
	owner, heaviest := e.join(c)
	sum, limit := c.Weight, c.Limit
	count := func(weight int64, until time.Time) {
		sum += weight
		if free.IsZero() || until.Before(free) {
			free = until
		}
	}
	for _, h := range e.holds {
		if h.owner != owner {
			count(h.weight, h.until)
		}
	}
	for _, h := range e.kept {
		count(h.weight, h.until)
	}
	if c.Fair && heaviest == 0 {
		// Earlier fair waiters count as if they had their holds. So a claim that is
		// admitted before them takes no room from them.
		for _, p := range e.places {
			if p.claim.Lease == c.Lease {
				break
			}
			if p.claim.Fair {
				count(p.claim.Weight, p.until)
				limit = min(limit, p.claim.Limit)
			}
		}
	}
	return free, sum <= limit
}

// fence returns the token of a claim that is admitted. Held says that its owner holds the
// whole key already.
func (e *entry) fence(c core.Claim, held bool) uint64 {
	if c.Weight < core.All {
		return 0
	}
	if !held {
		e.token = max(e.token+core.TokenStep, uint64(e.now.UnixMicro()))
	}
	// If the owner holds the whole key, the last grant was its own.
	e.token = max(e.token, c.MinToken)
	return e.token
}

// remember gives c a place if it waits. A claim that asks again keeps its place.
func (e *entry) remember(c core.Claim) {
	p := place{claim: c, since: e.now, until: e.now.Add(min(c.TTL, core.WaiterLife))}
	if i := e.find(c.Lease); i >= 0 {
		p.since = e.places[i].since
		e.places[i] = p
		return
	}
	e.places = append(e.places, p)
}

// leave removes the place of lease, if it has one.
func (e *entry) leave(lease string) bool {
	i := e.find(lease)
	if i < 0 {
		return false
	}
	e.places = slices.Delete(e.places, i, i+1)
	return true
}

func (e *entry) find(lease string) int {
	return slices.IndexFunc(e.places, func(p place) bool { return p.claim.Lease == lease })
}

// woken returns the leases of the waiting claims to wake: every claim that a finished record
// answers, the earliest claim that would be admitted now, and the earliest one before it for
// which only kept holds leave no room. Of these a fair claim and the last one keep their
// places. Any other claim loses its place, so that the next change wakes the next waiter.
func (e *entry) woken() (leases []string) {
	e.places = slices.DeleteFunc(e.places, func(p place) bool {
		if e.answers(p.claim) {
			leases = append(leases, p.claim.Lease)
			return true
		}
		return false
	})
	kept := e.kept
	hinted := len(kept) == 0
	for _, p := range e.places {
		if _, fits := e.room(p.claim); fits {
			if !p.claim.Fair {
				e.leave(p.claim.Lease)
			}
			return append(leases, p.claim.Lease)
		}
		if !hinted {
			e.kept = nil
			_, hinted = e.room(p.claim)
			e.kept = kept
			if hinted {
				leases = append(leases, p.claim.Lease)
			}
		}
	}
	return leases
}

// expire sets now, and removes everything that has ended by then.
func (e *entry) expire(now time.Time) {
	e.now = now
	for lease, h := range e.holds {
		if !h.until.After(now) {
			delete(e.holds, lease)
		}
	}
	for lease, until := range e.tombs {
		if !until.After(now) {
			delete(e.tombs, lease)
		}
	}
	e.kept = slices.DeleteFunc(e.kept, func(h hold) bool { return !h.until.After(now) })
	e.places = slices.DeleteFunc(e.places, func(p place) bool { return !p.until.After(now) })
	if e.record != nil && !e.record.until.After(now) {
		e.record = nil
	}
}

// empty tells that the key can be forgotten. Its last token must be kept until the clock has
// passed it.
func (e *entry) empty() bool {
	return len(e.holds) == 0 && len(e.kept) == 0 && len(e.places) == 0 && len(e.tombs) == 0 &&
		e.record == nil && e.token+core.TokenStep <= uint64(e.now.UnixMicro())
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
