package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockkit/lockkit/retry"
)

// tenure is a hold at the store that leases of this process have one after the
// other, with no trip from one to the next: the next one begins when the one
// before it has ended here. Each has a token of its own. The Release of each
// still says what the store says of the hold after that lease has ended; those
// that end while the store is being asked are answered together.
type tenure struct {
	claim Claim // as the store knows it

	// Under the lines' mutex.
	token uint64 // of the last lease, 0 if the store gives none
	spare int    // how many leases may come after it

	mu     sync.Mutex
	from   moment // the last confirmed attempt, as far as no lease knows of it
	valid  time.Duration
	at     *hold    // of the lease that has it, nil between two
	lost   bool     // the store does not have it any more
	over   bool     // no lease comes after this one: it is lost, ending, or the store did not answer
	asking bool     // the store is being asked
	next   *inquiry // of those who have come since it was asked
	end    *inquiry // the release of the hold, once it is under way
}

// inquiry is a question to the store, for all who wait for its answer.
type inquiry struct {
	lead chan struct{} // one of them receives from it, and asks
	done chan struct{} // closed when err is known
	err  error
	also *inquiry // has the same answer

	// assumed says that err is nil although the hold was gone, as it was perhaps
	// released by a call that had no answer.
	assumed bool
}

// errNoEnd is the answer to whoever waits for a call that has panicked.
var errNoEnd = errors.New("the call did not come to its end")

func newInquiry() *inquiry {
	return &inquiry{lead: make(chan struct{}, 1), done: make(chan struct{})}
}

// answer tells all who wait. A nil inquiry is that of a hold without a tenure.
func (i *inquiry) answer(err error, assumed bool) {
	for ; i != nil; i = i.also {
		i.err, i.assumed = err, assumed
		close(i.done)
	}
}

// bequeath gives g, of the head of the line, the hold that l has had, unless the
// store has to be asked for that: because it was not asked for a while, because
// somebody may know the owner and join, or because the next lease is not to be
// like this one. The caller holds the lines' mutex, and l has ended.
func (l *Lease) bequeath(t *turn, g *gift) bool {
	h := &l.first
	n := h.tenure
	if n == nil || n.spare == 0 || t.asked || t.whole || g.claim.TTL != n.claim.TTL {
		return false
	}
	if least := g.claim.MinToken; least > 0 && (n.token == 0 || least > n.token+1) {
		return false
	}
	now := l.locker.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown || h.reach != 0 || now.since(h.from) > min(chainTime, h.valid/50) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over {
		return false
	}
	n.spare--
	if n.token > 0 {
		n.token++
	}
	n.at, n.from, n.valid = nil, h.from, h.valid
	g.tenure, g.grant.Token = n, n.token
	l.passedOn = true
	return true
}

// inherit adds the hold that the turn was bequeathed, and reports whether it
// could.
func (a *attempt) inherit(g *gift) bool {
	n := g.tenure
	h := &a.lease.first
	*h = hold{lease: a.lease, claim: n.claim, token: g.grant.Token, carried: g.grant.Token > 0, tenure: n}
	now := a.now()
	a.lease.since, a.lease.chain = now, g.chain
	n.mu.Lock()
	h.from, h.valid = n.from, n.valid
	from, lost := n.from, n.lost
	n.mu.Unlock()
	if lost || !h.alive(now) {
		a.lease.since = moment{}
		a.cleaner.end(n, n.claim, a.name, false)
		return false
	}
	a.lease.add(h, now)
	n.mu.Lock()
	n.at = h
	later, valid, lost := n.from, n.valid, n.lost
	n.mu.Unlock()
	switch {
	case lost:
		a.lease.lose()
	case later.at > from.at:
		a.lease.confirm(h, later, valid)
	}
	return true
}

// ending says that the hold is about to be released. The caller must call answer
// on what it returns: that tells whoever waits to hear that the hold stands. It is
// nil without a tenure.
func (n *tenure) ending() *inquiry {
	if n == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end = newInquiry()
	n.end.also, n.next = n.next, nil
	n.over = true
	return n.end
}

// stands asks the store whether the hold is still there. The answer is of some
// time between the call and its return; it is nil, ErrLost, or why there is none.
func (l *Locker) stands(n *tenure, until time.Time) (err error) {
	n.mu.Lock()
	i := n.next
	switch {
	case n.end != nil:
		i = n.end
	case i != nil:
	case n.asking:
		i = newInquiry()
		n.next = i
	default:
		i = newInquiry()
		n.asking = true
		i.lead <- struct{}{}
	}
	n.mu.Unlock()
	select {
	case <-i.done:
		return i.err
	case <-i.lead:
	}
	err = errNoEnd
	defer func() { err = n.heard(i, err) }()
	return l.confirmTenure(n, until)
}

// heard passes on what the store has said to i, and the lead to who came later.
func (n *tenure) heard(i *inquiry, err error) error {
	lost := errors.Is(err, ErrLost)
	n.mu.Lock()
	next, end, at := n.next, n.end, n.at
	n.next, n.asking = nil, next != nil
	n.over = n.over || err != nil
	n.lost = n.lost || lost && end == nil
	n.mu.Unlock()
	if next != nil {
		next.lead <- struct{}{}
	}
	if lost && end != nil {
		// It was being released meanwhile, and perhaps that has come first.
		if <-end.done; !end.assumed {
			err = end.err
		}
	}
	i.answer(err, false)
	if lost && end == nil && at != nil {
		at.lease.lose()
	}
	return err
}

// confirmTenure extends the hold, for whichever lease has it.
func (l *Locker) confirmTenure(n *tenure, until time.Time) error {
	var pause func() (time.Duration, bool)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), min(budget(n.claim.TTL), time.Until(until)))
		start := l.now()
		x := answerTo(0, l.store.Extend(ctx, []Claim{n.claim}))
		cancel()
		switch {
		case x.Err == nil:
			if x.Valid == 0 {
				x.Valid = n.claim.TTL
			}
			n.mu.Lock()
			at := n.at
			if at == nil && start.at > n.from.at {
				n.from, n.valid = start, x.Valid
			}
			n.mu.Unlock()
			if at != nil {
				at.lease.confirm(at, start, x.Valid)
			}
			return nil
		case errors.Is(x.Err, ErrLost):
			return ErrLost
		}
		if pause == nil {
			pause = retry.Hiccup.Delays()
		}
		d, left := pause()
		if !left || time.Until(until) <= d {
			return x.Err
		}
		time.Sleep(d)
	}
}
