package core

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/fifo"
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
	s := Snapshot{Locks: []LockCount{}}
	l.cleanup.mu.Lock()
	s.CleanUps = l.cleanup.pending.n
	l.cleanup.mu.Unlock()
	age := func(lease *Lease) time.Duration {
		if lease == nil {
			return 0
		}
		return max(0, now.Since(lease.listed))
	}
	l.eachTally(func(of tallyOf, t *tally) (looked int) {
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

// eachTally looks at all tallies. Look returns at how many names or leases it has looked.
func (l *Locker) eachTally(look func(of tallyOf, t *tally) (looked int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	looked := 0
	for of, t := range l.tallies {
		if looked += look(of, t); looked >= snapshotStep {
			l.mu.Unlock() // so that no caller waits for all of them
			l.mu.Lock()
			looked = 0
		}
	}
}

// snapshotStep is at how many names or leases is looked while the Locker waits.
const snapshotStep = 256

// spareTallies is how many tallies of names that nothing is held of are kept, so that
// the usual names need not be made anew each time.
const spareTallies = 256

// tallies are the leases of a Locker, and its acquires under way, by name and mode.
// All is under the Locker's mutex.
type tallies map[tallyOf]*tally

type tallyOf struct {
	name string
	mode Mode
}

// tally is the leases of one name and mode by their stage, in the order in which they
// came to it.
type tally [stages]fifo.Queue[Lease]

// stage is how far a lease has come.
type stage uint8

const (
	acquiring  stage = iota // it is being acquired
	holding                 // it is its caller's
	unreleased              // it was lost, and not yet given back
	stages
)

func (t *tally) empty() bool {
	return t[acquiring].Len()+t[holding].Len()+t[unreleased].Len() == 0
}

// add lists a lease that is being acquired since at.
func (m tallies) add(l *Lease, at clock.Moment) {
	of := tallyOf{l.name, l.opts.mode}
	t := m[of]
	if t == nil {
		t = new(tally)
		m[of] = t
	}
	l.tally, l.stage, l.listed = t, acquiring, at
	t[acquiring].Push(&l.node, l)
}

// move lists l in a later stage, which it came to at this moment.
func (m tallies) move(l *Lease, to stage, at clock.Moment) {
	l.tally[l.stage].Remove(&l.node)
	l.stage, l.listed = to, at
	l.tally[to].Push(&l.node, l)
}

// remove lists l no more, if it was.
func (m tallies) remove(l *Lease) {
	t := l.tally
	if t == nil {
		return
	}
	t[l.stage].Remove(&l.node)
	l.tally = nil
	if len(m) > spareTallies && t.empty() {
		delete(m, tallyOf{l.name, l.opts.mode})
	}
}

// leases are those that were acquired and not given back.
func (m tallies) leases() (all []*Lease) {
	for _, t := range m {
		for _, s := range [...]stage{holding, unreleased} {
			for l := t[s].First(); l != nil; l = l.node.Next() {
				all = append(all, l)
			}
		}
	}
	return all
}

// standing is a lease that is held or waited for, and for how long it has been.
type standing struct {
	lease   *Lease
	waiting bool
	age     time.Duration
}

// longest returns what has been held or waited for since at least from, oldest first
// and at most so many. It holds a mutex only for a short part of the work at a time.
func (l *Locker) longest(from time.Duration, most int) []standing {
	var all []standing
	now := l.now()
	l.eachTally(func(_ tallyOf, t *tally) (looked int) {
		for _, s := range [...]stage{acquiring, holding} {
			n := 0
			for lease := t[s].First(); lease != nil && n < most; lease = lease.node.Next() {
				age := now.Since(lease.listed)
				if age < from {
					break // those behind it came later
				}
				all = append(all, standing{lease, s == acquiring, age})
				n++
			}
			looked += n + 1
		}
		return looked
	})
	slices.SortStableFunc(all, func(a, b standing) int { return cmp.Compare(b.age, a.age) })
	return all[:min(most, len(all))]
}
