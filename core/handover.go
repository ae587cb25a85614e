package core

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// A chain of hand-overs within a process gives way to whoever waits elsewhere
// when it has been this long: in leases, and in time.
const (
	chainLength = 16
	chainTime   = 10 * time.Millisecond
)

// chain is a row of leases of one process that handed a key on to each other.
type chain struct {
	leases int
	since  time.Time // when the first one of them was granted
}

// gift is a key on its way from a lease of this process that is being released
// to the head of the line.
type gift struct {
	claim  Claim  // what it is admitted as
	name   string // of that
	yield  bool
	chain  *chain
	tenure *tenure // the hold that it is, if it did not take a trip

	// Under the lines' mutex.
	done  bool // what follows is known
	left  bool // who was to get it has gone
	grant Grant
	start moment // when it was asked for
	err   error  // why it was not given
	doubt bool   // it may have been given all the same
}

// handing is how a Locker passes keys on in one step, if its store can.
type handing struct {
	store interface {
		Handover(ctx context.Context, from, to Claim) (Grant, error)
	}
	off   atomic.Bool
	hears atomic.Bool // the last watch of this process could be opened
}

func (h *handing) works() bool { return h.store != nil && !h.off.Load() }

// heritable tells that c, a claim of this request, can be given what a lease of
// the same process gives up: it is exclusive and all that its lease wants, joins
// nobody, and neither has a place in a queue that is not this one nor begins a
// run.
func (a *attempt) heritable(c *Claim) bool {
	return a.hands.works() && a.wait != 0 && !a.fair && a.lone && c.Record == nil && c.Via == ""
}

// passable tells that the lease's only hold can go to the next in line when it
// is released. What joined another owner's hold leaves the key taken.
func (l *Lease) passable() bool {
	return l.locker.hands.works() && l.opts.lone && l.opts.record == nil && l.opts.keep == 0 &&
		len(l.holds) == 1 && (l.first.tenure != nil || l.first.claim.Owner == l.first.claim.Lease)
}

// handOver gives the key to the head of its line, if there is one that can be
// given it: at once, if it can have the hold as it is, or else in the round trip
// that releases it. It reports what a release would have, or tried false.
func (l *Lease) handOver(until time.Time) (tried bool, err error) {
	q := l.locker
	if !l.passable() || l.unsure[l.key] {
		return false, nil
	}
	select {
	case <-q.closing:
		return false, nil // who waits is going
	default:
	}
	t, g := q.lines.heir(l)
	if g == nil {
		return false, nil
	}
	if g.tenure != nil {
		l.tellHandedOver()
		return true, q.stands(g.tenure, until)
	}
	end := l.first.tenure.ending()
	assumed := false
	defer func() { end.answer(err, assumed) }()
	err = errNoEnd
	assumed, err = l.pass(t, g, until)
	return true, err
}

func (l *Lease) tellHandedOver() {
	if q := l.locker; !q.unobserved() {
		q.observe(context.WithoutCancel(l.under), Event{Kind: HandedOver, Name: l.name})
	}
}

// pass has the store release the lease and admit t, to which g is on its way. If
// the outcome is unknown, t asks for itself under the same name, and the lease is
// released once more: then it is not held any more, and no straggler can hand it
// over. Assumed is that of release.
func (l *Lease) pass(t *turn, g *gift, until time.Time) (assumed bool, err error) {
	q := l.locker
	from := l.leaving(&l.first)
	if g.yield && !q.hands.hears.Load() {
		// Who waits elsewhere may hear nothing either. The store does not know of
		// them then, and they can only find a key that is free.
		assumed, err := q.release(from, l.name, false, false, until)
		g.err = &BusyError{Key: l.key}
		q.lines.give(t, g)
		return assumed, err
	}
	g.start = q.now()
	ctx, cancel := q.within(context.Background(), min(budget(min(from.TTL, g.claim.TTL)), time.Until(until)))
	grant, err := q.hands.store.Handover(ctx, from, g.claim)
	cancel()
	switch {
	case err == nil && g.yield:
		g.chain = &chain{since: g.start.time()} // nobody waits elsewhere
	case err == nil, errors.Is(err, ErrLost), errors.Is(err, ErrBusy):
	case errors.Is(err, ErrUnsupported):
		if g.claim.MinToken == 0 {
			q.hands.off.Store(true)
		}
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrUnavailable):
	default:
		g.doubt = true
	}
	g.grant, g.err = grant, err
	if !q.lines.give(t, g) && (err == nil || g.doubt) {
		q.cleaner.add(g.claim, g.name, g.doubt)
	}
	switch {
	case err == nil:
		l.tellHandedOver()
		return false, nil
	case errors.Is(err, ErrLost):
		return false, err
	case errors.Is(err, ErrBusy):
		return false, nil // it is released, others come first
	}
	return q.release(from, l.name, g.doubt, false, until)
}

// receive is what a turn does that was woken: it adds the hold if the turn was
// given the key, and reports whether it was.
func (a *attempt) receive(t *turn, c *Claim) bool {
	g := a.lines.unwrap(t)
	if g == nil {
		return false
	}
	if g.tenure != nil {
		return a.inherit(g)
	}
	if g.doubt {
		a.lease.doubt(c.Key)
	}
	if g.yield && errors.Is(g.err, ErrBusy) {
		a.gaveWay = min(time.Since(g.chain.since), chainTime) / 2
	}
	if g.err != nil || a.admit(&g.claim, g.grant, g.start) != nil {
		return false
	}
	a.lease.chain = g.chain
	return true
}

// refuse has what c was given, and is not taken, given back by take.
func (a *attempt) refuse(c *Claim, g *gift) {
	if g.tenure != nil {
		a.cleaner.end(g.tenure, g.tenure.claim, a.name, false)
		return
	}
	if g.doubt {
		a.lease.doubt(c.Key)
	}
	a.placed = a.placed || g.err == nil
}

// heir picks who gets the key of a lease that is being released: the head of its
// line, if it waits and asks nobody. If it can have the hold as it is, it is told
// so and has it.
func (l *lines) heir(from *Lease) (*turn, *gift) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.of[from.key]
	if n == nil {
		return nil, nil
	}
	t := n.head
	if !t.rests || t.gift != nil {
		return nil, nil
	}
	c := from.chain
	if c == nil {
		c = &chain{since: from.granted.time()}
	}
	c.leases++
	t.gift = &gift{claim: *t.claim, name: t.name, chain: c}
	// Only the store knows whether anybody waits elsewhere.
	t.gift.yield = c.leases >= chainLength || time.Since(c.since) >= chainTime
	if g := t.gift; !g.yield && from.bequeath(t, g) {
		g.done, t.rests = true, false
		close(t.ready)
	}
	return t, t.gift
}

// give tells t what became of g, and returns false if it has gone.
func (l *lines) give(t *turn, g *gift) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.done = true
	if g.left {
		return false
	}
	t.rests = false
	close(t.ready)
	return true
}

// unwrap takes what t was given, if anything was on its way.
func (l *lines) unwrap(t *turn) *gift {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := t.gift
	t.gift = nil
	return g
}

// vacate tells the line that the lease does not hold its key any more, so that
// its head has to ask the store.
func (l *lines) vacate(lease *Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.of[lease.key]
	if n == nil || n.holder != lease {
		return
	}
	n.holder = nil
	if t := n.head; t.rests && t.gift == nil {
		t.rests = false
		close(t.ready)
	}
}
