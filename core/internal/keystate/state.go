// Package keystate has the rule of a lock: the state of one key, and how a claim
// changes it. It is for stores that decide in Go: they load a [State], apply one
// operation at their own time, and store the result, which may be by compare-and-set.
//
// An operation is decided by its arguments alone. It reads no clock, waits for nothing
// and wakes nobody: it returns the leases of the waiting claims to wake. A State is
// plain data and not safe for concurrent use. Claims are as store.Checker allows them.
package keystate

import (
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// State is the stored state of one key. Its zero value is the state of a key that was
// never used. Each operation first removes everything that has expired at its time.
type State struct {
	Holds   []Hold      // in the order of their grants, but kept ones come later
	Waiters []Waiter    // in the order of their arrival
	Tombs   []Tombstone // in the order of their first release
	// Token is the first token of the last grant, which also has the store.TokenStep-1
	// after it. A State that was forgotten starts with the highest forgotten token, if
	// the clock may not have passed it.
	Token  uint64
	Record *Record // nil: no record
}

// Hold is a grant that has not expired. A hold without an owner was released with
// Claim.Keep, or revoked: it still counts, but can be neither joined, extended nor
// released.
type Hold struct {
	Lease, Owner string
	Weight       int64
	Since, Until time.Time
}

// Waiter is the part of a waiting claim that counts.
type Waiter struct {
	Lease, Owner, Via string
	Weight, Limit     int64
	Fair              bool
	Run               bool // it asks with a record
	Since, Until      time.Time
}

// Tombstone refuses a lease that was released before its claim came.
type Tombstone struct {
	Lease string
	Until time.Time
}

// Record is a stored answer.
type Record struct {
	Value   []byte
	Attempt int
	Done    bool
	Until   time.Time
	Saver   string // the lease that saved it, if no run has begun since
	// Beginner is the lease that began the last run, if nothing was saved since and it
	// was not undone. Fresh is set if there was no record then.
	Beginner string
	Fresh    bool
	Before   *Record // the record before that run, if it is remembered; it has none itself
}

// Empty reports whether the key can be forgotten at now. Its last token stays until the
// clock has passed it.
func (s *State) Empty(now time.Time) bool {
	if len(s.Holds) > 0 && s.Holds[0].Until.After(now) {
		return false // the usual case: it need not visit a crowd
	}
	s.expire(now)
	return len(s.Holds) == 0 && len(s.Waiters) == 0 && len(s.Tombs) == 0 && s.Record == nil &&
		s.Token+store.TokenStep <= uint64(now.UnixMicro())
}

// expire removes everything that has expired at now.
func (s *State) expire(now time.Time) {
	s.Holds = slices.DeleteFunc(s.Holds, func(h Hold) bool { return !h.Until.After(now) })
	s.Waiters = slices.DeleteFunc(s.Waiters, func(w Waiter) bool { return !w.Until.After(now) })
	s.Tombs = slices.DeleteFunc(s.Tombs, func(t Tombstone) bool { return !t.Until.After(now) })
	if s.Record != nil && !s.Record.Until.After(now) {
		s.Record = nil
	}
}

// find returns the hold of lease that has an owner, or -1.
func (s *State) find(lease string) int {
	return slices.IndexFunc(s.Holds, func(h Hold) bool { return h.Lease == lease && h.Owner != "" })
}

// end removes hold i. With keep > 0 its weight still counts for that time.
func (s *State) end(i int, now time.Time, keep time.Duration) {
	h := s.Holds[i]
	s.Holds = slices.Delete(s.Holds, i, i+1)
	if keep > 0 {
		s.Holds = append(s.Holds, Hold{Lease: h.Lease, Weight: h.Weight, Since: now, Until: now.Add(keep)})
	}
}

// refuses reports whether no claim of lease is admitted any more.
func (s *State) refuses(lease string) bool {
	return slices.ContainsFunc(s.Tombs, func(t Tombstone) bool { return t.Lease == lease }) ||
		slices.ContainsFunc(s.Holds, func(h Hold) bool { return h.Lease == lease && h.Owner == "" })
}

// bury refuses lease until at least the given time.
func (s *State) bury(lease string, until time.Time) {
	for i := range s.Tombs {
		if t := &s.Tombs[i]; t.Lease == lease {
			t.Until = later(t.Until, until)
			return
		}
	}
	s.Tombs = append(s.Tombs, Tombstone{lease, until})
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
