package core

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Snapshot is the state of a Locker at one moment, for gauges: it is not counted from
// events. It knows this process only.
type Snapshot struct {
	// Locks has one entry for each name and mode of which something is held, waited for,
	// or lost and not yet given back, in this order.
	Locks []LockCount
	// CleanUps is how many claims are being given back in the background. Those of
	// unknown outcome stay until the store has answered, or their time is over.
	CleanUps int
}

// LockCount is the part of one name and mode.
type LockCount struct {
	Name string
	Mode Mode
	// Held is how many leases there are, from when they are acquired until they are
	// lost, or their Release has the store's answer; each nested one counts.
	Held int
	// Lost is how many leases were lost and not yet given back, by Release, Finish,
	// Withdraw or Close: their work may still be running. One that is never given back
	// counts for as long as the Locker is used.
	Lost int
	// Waiting is how many acquires are under way: for the store's answer, for the
	// key, or in the queue of this process.
	Waiting int
	// OldestHeld is how long the lease that was acquired first has been held, 0 if
	// there is none, and OldestWaiting for how long the first acquire has waited.
	OldestHeld, OldestWaiting time.Duration
}

// Snapshot tells the numbers of leases and waiters. Its work is constant for each name,
// however many leases there are. It does not block, asks the store nothing, and is
// safe for concurrent use; a closed Locker has one too.
func (l *Locker) Snapshot() Snapshot {
	now := l.now()
	s := Snapshot{Locks: []LockCount{}, CleanUps: l.cleanup.size()}
	age := func(lease *Lease) time.Duration {
		if lease == nil {
			return 0
		}
		return max(0, now.Since(lease.listing.since))
	}
	l.roster.each(func(of tallyOf, t *tally) (looked int) {
		if !t.empty() {
			s.Locks = append(s.Locks, LockCount{
				Name: of.name, Mode: of.mode,
				Held: t[holding].Len(), Lost: t[unreleased].Len(), Waiting: t[acquiring].Len(),
				OldestHeld: age(t[holding].First()), OldestWaiting: age(t[acquiring].First()),
			})
		}
		return 1
	})
	compare := func(a, b LockCount) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Mode, b.Mode))
	}
	slices.SortStableFunc(s.Locks, compare)
	// A name that went and came back meanwhile may have been met twice.
	s.Locks = slices.CompactFunc(s.Locks, func(a, b LockCount) bool { return compare(a, b) == 0 })
	return s
}
