package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/order"
)

// cleanUpEvery is the pace of the releases that the store has not answered, and
// cleanUpWidth how many are sent at a time.
const (
	cleanUpEvery = 100 * time.Millisecond
	cleanUpWidth = 32
	// cleanUpLeast is how long to try at least, however short the TTL: an acquire can
	// wait in the socket of a frozen server, which grants it when it goes on.
	cleanUpLeast = time.Minute
	// cleanUpRun is the same where a run has to be saved or undone: without that it
	// counts as a run that died for as long as its record is kept.
	cleanUpRun = 10 * time.Minute
)

// cleanup releases claims that have no lease: the caller gave up, or the outcome is
// unknown. It tries until the store answers, or the longer of the claim's TTL and
// cleanUpLeast (cleanUpRun) has passed. A grant that comes later ends with its TTL.
type cleanup struct {
	locker *Locker

	mu      order.Mutex[cleanupRank]
	active  count // first tries, and the loop
	waiting []pending
	pending int // claims that are not settled
	looping bool
}

type pending struct {
	claim  Claim
	name   string
	mode   Mode
	unsure bool // may be held
	until  time.Time
}

func (u *pending) about() (key, lease string) { return u.claim.Key, u.claim.Lease }

// add releases c, a claim of l, in the background. Its first try does not wait for other
// claims, and is the answer for the callers that wait for end.
func (q *cleanup) add(c Claim, l *Lease, unsure bool, end *confirmation) {
	least := cleanUpLeast
	if c.Undo || c.Record != nil {
		least = cleanUpRun
	}
	u := pending{claim: c, name: l.name, mode: l.opts.mode, unsure: unsure, until: time.Now().Add(max(c.TTL, least))}
	q.mu.Lock()
	q.active.add(1)
	q.pending++
	q.mu.Unlock()
	go func() {
		settled, err := q.try(u)
		end.answer(err, false)
		q.mu.Lock()
		defer q.mu.Unlock()
		if settled {
			q.pending--
		} else {
			q.waiting = append(q.waiting, u)
			if !q.looping {
				q.looping = true
				q.active.add(1)
				go q.loop()
			}
		}
		q.active.add(-1)
	}()
}

// wait returns true when nothing is left to do, and false if ctx ends before
// that.
func (q *cleanup) wait(ctx context.Context) bool {
	q.mu.Lock()
	idle := q.active.zero()
	q.mu.Unlock()
	return done(ctx, idle)
}

// loop makes rounds until no claim is left. It pauses after a round that has failed, and
// not while the store answers, since an outage can leave thousands of claims.
func (q *cleanup) loop() {
	settled := false
	for {
		if !settled {
			time.Sleep(cleanUpEvery)
		}
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.looping = false
			q.active.add(-1)
			q.mu.Unlock()
			return
		}
		n := min(len(q.waiting), cleanUpWidth)
		round := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		q.mu.Unlock()
		settled = q.round(round)
	}
}

// round tries some claims side by side, and reports whether all are settled. Those that
// fail go to the end, so that a server that is down does not delay the claims at others.
func (q *cleanup) round(round []pending) bool {
	var wg sync.WaitGroup
	var failed atomic.Bool
	for _, u := range round {
		wg.Go(func() {
			settled, _ := q.try(u)
			q.mu.Lock()
			defer q.mu.Unlock()
			if settled {
				q.pending--
				return
			}
			failed.Store(true)
			q.waiting = append(q.waiting, u)
		})
	}
	wg.Wait()
	return !failed.Load()
}

// try releases u once, and reports whether it is settled, and the store's first answer.
func (q *cleanup) try(u pending) (settled bool, first error) {
	ctx, cancel := context.WithTimeout(context.Background(), budget(u.claim.TTL))
	defer cancel()
	c := u.claim
	if !u.unsure {
		c.TTL = 0 // nothing is on its way that would have to be refused
	}
	err := q.locker.store.Release(ctx, c)
	first = err
	if err == nil && u.unsure {
		c.Record = nil // is saved
		// The release of a hold leaves no tombstone, and an earlier attempt may still
		// arrive. Only the answer "not held" says that it will be refused.
		err = q.locker.store.Release(ctx, c)
	}
	switch {
	case err == nil && u.unsure && time.Now().Before(u.until):
		return false, first
	case err == nil, answered(ctx, err):
		err = nil
	case time.Now().Before(u.until):
		return false, first
	}
	if u.unsure {
		done := u // most are not told
		q.locker.observe(ctx, Event{Kind: CleanedUp, Name: u.name, Mode: u.mode, Err: err, of: &done})
	}
	return true, first
}
