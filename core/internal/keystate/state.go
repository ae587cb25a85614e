// Package keystate implements the rule of a lock: the state of one key, and the
// operations of claims on it. It is for stores that decide in Go. Such a store loads a
// [State], applies one operation at the time of its own clock, and stores the result,
// for example by compare-and-set.
//
// The result of an operation depends only on the State and the arguments. An operation
// reads no clock and does not block. It does not wake waiters itself, but returns the
// leases of the waiting claims that the caller must wake. A State is plain data and not
// safe for concurrent use. The caller has checked claims as store.Checker does.
package keystate

import (
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// State is the stored state of one key. The zero State is the state of a key that was
// never used. Each operation first removes all entries that have expired at now.
type State struct {
	Holds   []Hold      // in the order of the grants; Claim.Keep and Revoke move a hold to the end
	Waiters []Waiter    // in the order of their arrival
	Tombs   []Tombstone // in the order of their first release
	// Token is the first token of the last grant, which also owns the next
	// store.TokenStep-1 tokens. If a key was forgotten, its next State starts with the
	// highest forgotten token, unless the clock has certainly passed that token.
	Token  uint64
	Record *Record // nil if there is no record
}

// Hold is a grant that has not expired. A hold without an owner was released with
// Claim.Keep, or was revoked. Its weight still counts, but it cannot be joined,
// extended or released.
type Hold struct {
	Lease, Owner string
	Weight       int64
	Since, Until time.Time
}

// Waiter is the stored part of a waiting claim.
type Waiter struct {
	Lease, Owner, Via string
	Weight, Limit     int64
	Fair              bool
	Run               bool // the claim has a record
	Since, Until      time.Time
}

// Tombstone makes the State refuse a lease that was released before its claim arrived.
type Tombstone struct {
	Lease string
	Until time.Time
}

// Record is the stored record of a run, in package once its answer.
type Record struct {
	Value   []byte
	Attempt int
	Done    bool
	Until   time.Time
	Saver   string // the lease that saved the record, if no run has begun since
	// Beginner is the lease of the last run, until the run is undone or a record is
	// saved. Fresh is set if that run found no record.
	Beginner string
	Fresh    bool
	Before   *Record // the record before the last run, if remembered; its own Before is nil
}

// Empty reports whether the key can be forgotten at the time now. A key whose last token
// is still ahead of the clock cannot be forgotten.
func (s *State) Empty(now time.Time) bool {
	if len(s.Holds) > 0 && s.Holds[0].Until.After(now) {
		return false // the usual case, without visiting all entries
	}
	s.expire(now)
	return len(s.Holds) == 0 && len(s.Waiters) == 0 && len(s.Tombs) == 0 && s.Record == nil &&
		s.Token+store.TokenStep <= uint64(now.UnixMicro())
}

// expire removes all entries that have expired at the time now.
func (s *State) expire(now time.Time) {
	s.Holds = slices.DeleteFunc(s.Holds, func(h Hold) bool { return !h.Until.After(now) })
	s.Waiters = slices.DeleteFunc(s.Waiters, func(w Waiter) bool { return !w.Until.After(now) })
	s.Tombs = slices.DeleteFunc(s.Tombs, func(t Tombstone) bool { return !t.Until.After(now) })
	if s.Record != nil && !s.Record.Until.After(now) {
		s.Record = nil
	}
}

// find returns the index of the hold of lease that has an owner, or -1.
func (s *State) find(lease string) int {
	return slices.IndexFunc(s.Holds, func(h Hold) bool { return h.Lease == lease && h.Owner != "" })
}

// end removes hold i. If keep > 0, the hold's weight still counts for that time.
func (s *State) end(i int, now time.Time, keep time.Duration) {
	h := s.Holds[i]
	s.Holds = slices.Delete(s.Holds, i, i+1)
	if keep > 0 {
		s.Holds = append(s.Holds, Hold{Lease: h.Lease, Weight: h.Weight, Since: now, Until: now.Add(keep)})
	}
}

// refuses reports whether claims of lease are no longer admitted.
func (s *State) refuses(lease string) bool {
	return slices.ContainsFunc(s.Tombs, func(t Tombstone) bool { return t.Lease == lease }) ||
		slices.ContainsFunc(s.Holds, func(h Hold) bool { return h.Lease == lease && h.Owner == "" })
}

// bury makes the State refuse lease until at least the given time.
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
