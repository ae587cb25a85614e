package core

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/fifo"
	"github.com/lockkit/lockkit/core/internal/order"
)

// roster lists a Locker's acquires in flight, and its leases that are not yet released.
// After its method close it admits no acquire.
type roster struct {
	mu         order.Mutex[rosterRank]
	closing    context.Context // done when Close begins
	beginClose context.CancelFunc
	active     count   // the number of listed acquires and leases
	tallies    tallies // the listed acquires and leases, by name and mode
}

func (r *roster) init() {
	r.closing, r.beginClose = context.WithCancel(context.Background())
	r.tallies = make(tallies)
}

// close stops the roster from admitting acquires. It returns a channel that is closed
// when the roster is empty.
func (r *roster) close() (idle <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginClose()
	return r.active.zero()
}

// countIn adds an acquire to the roster. It returns false if the Locker is closed.
func (r *roster) countIn(l *Lease, at clock.Moment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing.Err() != nil {
		return false
	}
	r.active.add(1)
	of := tallyOf{l.name, l.opts.mode}
	t := r.tallies[of]
	if t == nil {
		t = new(tally)
		r.tallies[of] = t
	}
	g := &l.listing
	g.in, g.stage, g.since = t, acquiring, at
	t[acquiring].Push(&g.node, l)
	return true
}

// countOut removes l, an acquire or a lease, from the roster.
func (r *roster) countOut(l *Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.active.add(-1)
	t := l.listing.in
	if t == nil {
		return
	}
	t[l.listing.stage].Remove(&l.listing.node)
	l.listing.in = nil
	if len(r.tallies) > spareTallies && t.empty() {
		delete(r.tallies, tallyOf{l.name, l.opts.mode})
	}
}

// countHeld lists a lease as held. It returns false if the Locker was closed during the
// acquire.
func (r *roster) countHeld(l *Lease, at clock.Moment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing.Err() != nil {
		return false
	}
	l.listing.move(l, holding, at)
	return true
}

// countLost lists a lease as lost, if it is listed as held.
func (r *roster) countLost(l *Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.listing.in != nil && l.listing.stage == holding {
		l.listing.move(l, unreleased, l.listing.since)
	}
}

// heldLeases returns the leases that are not yet released, lost ones included.
func (r *roster) heldLeases() (all []*Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tallies {
		for _, s := range [...]stage{holding, unreleased} {
			for l := t[s].First(); l != nil; l = l.listing.node.Next() {
				all = append(all, l)
			}
		}
	}
	return all
}

// each calls visit for each tally. visit returns the number of entries that it visited.
func (r *roster) each(visit func(of tallyOf, t *tally) (visited int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	visited := 0
	for of, t := range r.tallies {
		if visited += visit(of, t); visited >= snapshotStep {
			r.mu.Unlock() // so that no other caller waits for the whole iteration
			r.mu.Lock()
			visited = 0
		}
	}
}

// snapshotStep is the number of entries after which roster.each unlocks the roster for
// a moment.
const snapshotStep = 256

// spareTallies is the number of tallies above which empty tallies are deleted. Up to
// this number empty tallies stay, so that names in regular use need no allocation.
const spareTallies = 256

// tallies are the leases of a Locker, and its acquires in flight, by name and mode. The
// mutex of the roster guards the tallies and their entries.
type tallies map[tallyOf]*tally

type tallyOf struct {
	name string
	mode Mode
}

// tally has the leases of one name and mode, in a queue for each stage. Each queue is
// in the order in which its leases reached the stage.
type tally [stages]fifo.Queue[Lease]

// stage is the progress of a lease.
type stage uint8

const (
	acquiring  stage = iota // the acquire is in flight
	holding                 // the caller holds the lease
	unreleased              // the lease was lost, and not yet released
	stages
)

func (t *tally) empty() bool {
	return t[acquiring].Len()+t[holding].Len()+t[unreleased].Len() == 0
}

// listing is a lease's part of the roster.
type listing struct {
	in    *tally // nil before and after the lease is listed
	node  fifo.Node[Lease]
	since clock.Moment // the start of the stage; a lost lease keeps the start of holding
	stage stage
}

// move lists l, the lease of this listing, in the stage to. at is the new value of
// since.
func (g *listing) move(l *Lease, to stage, at clock.Moment) {
	g.in[g.stage].Remove(&g.node)
	g.stage, g.since = to, at
	g.in[to].Push(&g.node, l)
}

// standing is a lease that is held or waited for, and the time since it was granted or
// requested.
type standing struct {
	lease   *Lease
	waiting bool
	age     time.Duration
}

// longest returns the leases that are held or waited for, for at least the duration
// from, the oldest first. The parameter most limits the number of returned leases. It
// releases the roster's mutex between short parts of the work.
func (r *roster) longest(from time.Duration, most int, now clock.Moment) []standing {
	var all []standing
	r.each(func(_ tallyOf, t *tally) (visited int) {
		for _, s := range [...]stage{acquiring, holding} {
			n := 0
			for lease := t[s].First(); lease != nil && n < most; lease = lease.listing.node.Next() {
				age := now.Since(lease.listing.since)
				if age < from {
					break // the leases behind lease are younger
				}
				all = append(all, standing{lease, s == acquiring, age})
				n++
			}
			visited += n + 1
		}
		return visited
	})
	slices.SortStableFunc(all, func(a, b standing) int { return cmp.Compare(b.age, a.age) })
	return all[:min(most, len(all))]
}
