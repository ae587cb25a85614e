package keystate

import (
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// waiter returns the part of c that determines its admission.
func waiter(now time.Time, c store.Claim) Waiter {
	return Waiter{
		Lease: c.Lease, Owner: c.Owner, Via: c.Via, Weight: c.Weight, Limit: c.Limit, Fair: c.Fair, Run: c.Record != nil,
		Since: now, Until: now.Add(min(c.TTL, store.WaiterLife)),
	}
}

// join returns the owner that a hold of w would have, and the weight of that owner's
// heaviest hold, or 0.
func (s *State) join(w Waiter) (owner string, heaviest int64) {
	if w.Via != "" {
		if heaviest := s.heaviest(w.Via); heaviest > 0 {
			return w.Via, heaviest
		}
	}
	return w.Owner, s.heaviest(w.Owner)
}

func (s *State) heaviest(owner string) (weight int64) {
	for i := range s.Holds {
		if h := &s.Holds[i]; h.Owner == owner {
			weight = max(weight, h.Weight)
		}
	}
	return weight
}

// room applies the admission rule. It reports whether w fits. Holds without an owner
// count only if kept is true. If w does not fit, free is the earliest expiry of a hold
// or earlier fair waiter that counts.
func (s *State) room(w Waiter, kept bool) (free time.Time, fits bool) {
	owner, heaviest := s.join(w)
	sum, limit := w.Weight, w.Limit
	count := func(weight int64, until time.Time) {
		sum += weight
		if free.IsZero() || until.Before(free) {
			free = until
		}
	}
	for i := range s.Holds {
		if h := &s.Holds[i]; h.Owner != owner && (kept || h.Owner != "") {
			count(h.Weight, h.Until)
		}
	}
	if w.Fair && heaviest == 0 {
		// Earlier fair waiters of other owners count as if they held the key. So a
		// claim that is admitted before them does not take their room.
		for i := range s.Waiters {
			p := &s.Waiters[i]
			if p.Lease == w.Lease {
				break
			}
			if p.Fair && p.Owner != owner {
				count(p.Weight, p.Until)
				limit = min(limit, p.Limit)
			}
		}
	}
	return free, sum <= limit
}

// fence returns the token of an admitted claim. held reports whether the claim's owner
// already holds the whole key. The last grant was then the owner's.
func (s *State) fence(now time.Time, c store.Claim, held bool) uint64 {
	if c.Weight < store.All {
		return 0
	}
	if !held {
		s.Token = max(s.Token+store.TokenStep, uint64(now.UnixMicro()))
	}
	s.Token = max(s.Token, c.MinToken)
	return s.Token
}

// enter adds w to the waiters. A claim that is refused again keeps its place.
func (s *State) enter(w Waiter) {
	if i := s.place(w.Lease); i >= 0 {
		w.Since = s.Waiters[i].Since
		s.Waiters[i] = w
		return
	}
	s.Waiters = append(s.Waiters, w)
}

// leave removes the waiter of lease, and reports whether there was one.
func (s *State) leave(lease string) bool {
	i := s.place(lease)
	if i < 0 {
		return false
	}
	s.Waiters = slices.Delete(s.Waiters, i, i+1)
	return true
}

func (s *State) place(lease string) int {
	return slices.IndexFunc(s.Waiters, func(w Waiter) bool { return w.Lease == lease })
}

// wake returns the leases of the waiting claims to wake:
//   - every claim that a finished record answers,
//   - the earliest claim that would be admitted now,
//   - the earliest claim that only holds without an owner keep out, unless it comes
//     after the claim of the second kind.
//
// The claim of the third kind keeps its place, and so does a fair claim that would be
// admitted. Every other woken claim loses its place, so that the next change wakes the
// next claim.
func (s *State) wake() (leases []string) {
	s.Waiters = slices.DeleteFunc(s.Waiters, func(w Waiter) bool {
		if !s.answers(w) {
			return false
		}
		leases = append(leases, w.Lease)
		return true
	})
	hinted := !slices.ContainsFunc(s.Holds, func(h Hold) bool { return h.Owner == "" })
	for _, w := range s.Waiters {
		if _, fits := s.room(w, true); fits {
			if !w.Fair {
				s.leave(w.Lease)
			}
			return append(leases, w.Lease)
		}
		if !hinted {
			if _, hinted = s.room(w, false); hinted {
				leases = append(leases, w.Lease)
			}
		}
	}
	return leases
}
