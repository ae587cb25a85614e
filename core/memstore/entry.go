package memstore

import (
	"slices"
	"time"

	"github.com/lockkit/lockkit/core"
)

// entry is all that is known of one key. Its methods see only what is live at
// now, the moment of the last expire.
type entry struct {
	now    time.Time
	holds  map[string]*hold     // by lease
	kept   []hold               // released with Keep: nobody's, but in the way
	places []place              // waiting claims in order of arrival
	tombs  map[string]time.Time // leases that were released unheld, and until when to refuse them
	token  uint64               // of the last grant, whose are the core.TokenStep-1 after it, too
	record *record
}

type hold struct {
	owner  string
	weight int64
	until  time.Time
}

type place struct {
	claim core.Claim
	until time.Time
}

func newEntry() *entry {
	return &entry{holds: make(map[string]*hold), tombs: make(map[string]time.Time)}
}

// acquire is core.Store.Acquire.
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
		e.remember(c)
		return core.Grant{}, &core.BusyError{Key: c.Key, RetryAfter: free.Sub(e.now)}
	}
	e.leave(c.Lease)
	e.begin(c)
	token := e.fence(c, heaviest == core.All)
	e.holds[c.Lease] = &hold{owner: owner, weight: c.Weight, until: e.now.Add(c.TTL)}
	return core.Grant{Owner: owner, Token: token, Record: e.recorded(c)}, nil
}

// extend is core.Store.Extend for one claim.
func (e *entry) extend(c core.Claim) error {
	h := e.holds[c.Lease]
	if h == nil {
		return core.ErrLost
	}
	h.until = later(h.until, e.now.Add(c.TTL))
	return nil
}

// release is core.Store.Release.
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
		// Also for a claim that waits: a repetition of its Acquire may still be
		// on the way.
		e.tombs[c.Lease] = later(e.tombs[c.Lease], e.now.Add(c.TTL))
		if e.leave(c.Lease) && c.Record == nil {
			return nil
		}
		return core.ErrLost
	}
	delete(e.holds, c.Lease)
	if c.Keep > 0 {
		e.kept = append(e.kept, hold{weight: h.weight, until: e.now.Add(c.Keep)})
	}
	if c.Record != nil {
		e.saveFor(c)
	}
	return nil
}

// join returns the owner that c would hold for, and that owner's heaviest
// hold, 0 if it has none.
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

// room is the admission rule. If c does not fit, it returns when the first of
// those in its way will be gone.
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
		// Earlier fair waiters count as if they held already: who is admitted
		// past them takes nothing from them.
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

// fence returns the token of a claim that is admitted.
func (e *entry) fence(c core.Claim, held bool) uint64 {
	if c.Weight < core.All {
		return 0
	}
	if !held {
		e.token = max(e.token+core.TokenStep, uint64(e.now.UnixMicro()))
	}
	// While somebody holds the whole key, the last grant is theirs.
	e.token = max(e.token, c.MinToken)
	return e.token
}

// remember notes that c waits. Who asks again keeps its place.
func (e *entry) remember(c core.Claim) {
	if !c.Wait {
		return
	}
	p := place{claim: c, until: e.now.Add(min(c.TTL, core.WaiterLife))}
	if i := e.find(c.Lease); i >= 0 {
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

// woken picks the waiting claims that are answered by a finished record, and the
// earliest that would be admitted now. A fair one of those keeps its place until
// it asks; any other is woken once, so that the next change wakes the next
// waiter.
func (e *entry) woken() (leases []string) {
	e.places = slices.DeleteFunc(e.places, func(p place) bool {
		if e.answers(p.claim) {
			leases = append(leases, p.claim.Lease)
			return true
		}
		return false
	})
	for _, p := range e.places {
		if _, fits := e.room(p.claim); fits {
			if !p.claim.Fair {
				e.leave(p.claim.Lease)
			}
			return append(leases, p.claim.Lease)
		}
	}
	return leases
}

// expire sets now and forgets what has ended by then.
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

// empty says that forgetting the key changes nothing. The last token of a grant must
// be remembered until the clock has passed it.
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
