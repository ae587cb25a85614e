package core

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Snapshot is the state of a Locker at one moment, for gauges. It covers this Locker
// only, and needs no observer.
type Snapshot struct {
	// Locks has one entry for each name and mode with a lease that is held, waited for,
	// or lost and not yet released. The entries are sorted by name, then by mode.
	Locks []LockCount
	// CleanUps is the number of claims that are being released in the background. Each
	// claim counts until the store has confirmed the release, or until the time limit
	// of the release has passed.
	CleanUps int
}

// LockCount is the part of a Snapshot for one name and mode.
type LockCount struct {
	Name string
	Mode Mode
	// Held is the number of leases that are held. A lease counts from the end of its
	// acquire until it is lost, or until its Release returns. Each nested lease counts.
	Held int
	// Lost is the number of leases that were lost and not yet released by Release,
	// Finish, Withdraw or Close. The work under such a lease may still be running. A
	// lost lease that is never released counts for the whole life of the Locker.
	Lost int
	// Waiting is the number of acquires in flight. An acquire waits in the queue of
	// this process, for the store's answer, or for the key.
	Waiting int
	// OldestHeld is the time for which the oldest lease has been held, or 0 if Held is
	// 0. OldestWaiting is the time for which the oldest acquire has waited, or 0 if
	// Waiting is 0.
	OldestHeld, OldestWaiting time.Duration
}

// Snapshot returns the numbers of leases and waiters. Its cost depends on the number of
// names and modes, and not on the number of leases. Snapshot does not block, sends
// nothing to the store, and is safe for concurrent use. It works on a closed Locker
// too.
func (l *Locker) Snapshot() Snapshot {
	now := l.now()
	s := Snapshot{Locks: []LockCount{}, CleanUps: l.cleanup.size()}
	age := func(lease *Lease) time.Duration {
		if lease == nil {
			return 0
		}
		return max(0, now.Since(lease.listing.since))
	}
	l.roster.each(func(of tallyOf, t *tally) (visited int) {
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
	// A name whose tally was removed and added again during the visit may have two
	// entries.
	s.Locks = slices.CompactFunc(s.Locks, func(a, b LockCount) bool { return compare(a, b) == 0 })
	return s
}
