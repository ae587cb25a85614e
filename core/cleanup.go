package core

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/core/store"
)

const (
	// maxResent is how many bytes of a value are sent before the record instead takes its
	// place, if there is one.
	maxResent = 8 << 20
	// cleanUpWidth is how many releases are sent at a time.
	cleanUpWidth = 32
)

// cleanup releases claims that have no lease: the caller gave up, or the outcome is
// unknown. It tries until the store answers, or the longer of the claim's TTL and
// cleanUpLeast (cleanUpRun) has passed. A grant that comes later ends with its TTL.
type cleanup struct {
	calls  *storeCalls
	events events

	mu      order.Mutex[cleanupRank]
	pending count     // claims that are not settled
	waiting []pending // those of them that are to be tried again
	looping bool
}

type pending struct {
	claim  releasing
	unsure bool // may be held
	until  time.Time
	pause  time.Duration // after the next try without an answer
	resent int           // bytes of its value
}

func (u *pending) about() (key, hold string) { return u.claim.Key, store.HoldID(u.claim.Lease) }

func (cl *cleanup) init(c *storeCalls, v events) { cl.calls, cl.events = c, v }

// add releases c in the background. Its first try does not wait for other claims, and its
// answer goes to answer.
func (cl *cleanup) add(c releasing, unsure bool, answer func(error)) {
	least := cleanUpLeast
	if c.Undo || c.Record != nil {
		least = cleanUpRun
	}
	u := pending{claim: c, unsure: unsure, until: time.Now().Add(max(c.TTL, least)), pause: cleanUpPause}
	cl.mu.Lock()
	cl.pending.add(1)
	cl.mu.Unlock()
	go func() {
		settled, err := cl.try(u)
		answer(err)
		cl.tried(u, settled)
	}()
}

// tried notes how a try of u ended. After a pause, a claim that is not settled goes to the
// end. A round lasts as long as its slowest try, also for claims at other servers.
func (cl *cleanup) tried(u pending, settled bool) {
	if !settled {
		time.Sleep(u.pause)
		if u.claim.Record != nil {
			u.pause = min(2*u.pause, longestPause)
			u.resent += len(u.claim.Record.Value)
		}
		if u.resent > maxResent {
			u.claim.shorten()
		}
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if settled {
		cl.pending.add(-1)
		return
	}
	cl.waiting = append(cl.waiting, u)
	if !cl.looping {
		cl.looping = true
		go cl.loop()
	}
}

// loop tries some claims side by side until none is left. The pause of one that has failed
// is one of its round, and there is none while the store answers, since an outage can leave
// thousands of claims.
func (cl *cleanup) loop() {
	for {
		cl.mu.Lock()
		n := min(len(cl.waiting), cleanUpWidth)
		round := cl.waiting[:n:n]
		cl.waiting = cl.waiting[n:]
		cl.looping = n > 0
		cl.mu.Unlock()
		if n == 0 {
			return
		}
		var tries sync.WaitGroup
		for _, u := range round {
			tries.Go(func() {
				settled, _ := cl.try(u)
				cl.tried(u, settled)
			})
		}
		tries.Wait()
	}
}

// wait returns true when nothing is left to do, and false if ctx ends before
// that.
func (cl *cleanup) wait(ctx context.Context) bool {
	cl.mu.Lock()
	idle := cl.pending.zero()
	cl.mu.Unlock()
	return done(ctx, idle)
}

// size returns how many claims are not settled.
func (cl *cleanup) size() int {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.pending.n
}

// try releases u once, and reports whether it is settled, and the store's first answer.
func (cl *cleanup) try(u pending) (settled bool, first error) {
	ctx, cancel := context.WithTimeout(context.Background(), budget(u.claim.TTL))
	defer cancel()
	c := u.claim.Claim
	if !u.unsure {
		c.TTL = 0 // nothing is on its way that would have to be refused
	}
	err := cl.calls.store.Release(ctx, c)
	first = err
	if err == nil && u.unsure {
		c.Record = nil // is saved
		// The release of a hold leaves no tombstone, and an earlier attempt may still
		// arrive. Only the answer "not held" says that it will be refused.
		err = cl.calls.store.Release(ctx, c)
	}
	over := err == nil && !u.unsure || answered(ctx, err)
	if !over && time.Now().Before(u.until) {
		return false, first // if it was held until now, it is asked again until the answer is "not held"
	}
	if u.unsure {
		if over {
			err = nil
		}
		of := u // a copy, so that u is not allocated when nothing is told
		cl.events.observe(ctx, Event{Kind: CleanedUp, Name: u.claim.name, Mode: u.claim.mode, Err: err, of: &of})
	}
	return true, first
}
