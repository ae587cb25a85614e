package core

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/core/store"
)

const (
	// maxResent limits the bytes of a record's value that the cleanup sends for one
	// claim without success. When the tries have sent more bytes, the substitute record
	// (releasing.instead), if there is one, replaces the record.
	maxResent = 8 << 20
	// cleanUpWidth bounds the number of goroutines that make later tries. The first try
	// of each claim has its own goroutine.
	cleanUpWidth = 32
)

// cleanup releases claims that have no lease any more, after an acquire that gave up, a
// lost lease, or a release without an answer. It tries until the store answers, or
// until the longer of the claim's TTL and cleanUpLeast has passed. If an earlier
// request for the claim had an unknown outcome, only the answer that the claim is not
// held ends the tries before that time. For a run that has to be saved or undone,
// cleanUpRun replaces cleanUpLeast. If the store grants a claim after the last try, the
// grant expires after its TTL.
type cleanup struct {
	calls  *storeCalls
	events events

	mu      order.Mutex[cleanupRank]
	pending count     // claims that are neither released nor given up
	waiting []pending // the pending claims that are due again
	workers int       // goroutines that try the claims in waiting, at most cleanUpWidth
}

type pending struct {
	claim  releasing
	unsure bool // an earlier request had an unknown outcome, so it may still arrive and be granted
	until  time.Time
	pause  time.Duration // the pause after the next try without an answer
	resent int           // bytes of the record's value that the tries have sent
}

func (u *pending) about() (key, hold string) { return u.claim.Key, store.HoldID(u.claim.Lease) }

func (cl *cleanup) init(c *storeCalls, v events) { cl.calls, cl.events = c, v }

// add releases c in the background. The first try does not wait for other claims, and
// answer is called with its result.
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
		settled, err := cl.try(&u)
		answer(err)
		cl.tried(u, settled)
	}()
}

// tried records whether a try has settled u: u was released, or the cleanup gives up.
// Otherwise u is due again after its pause.
func (cl *cleanup) tried(u pending, settled bool) {
	if settled {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		cl.pending.add(-1)
		return
	}
	pause := u.pause
	if u.claim.Record != nil {
		u.pause = min(2*u.pause, longestPause)
		u.resent += len(u.claim.Record.Value)
	}
	if u.resent > maxResent {
		u.claim.shorten()
	}
	time.AfterFunc(pause, func() { cl.again(u) })
}

// again queues u behind the claims that are due already. It starts a worker unless
// cleanUpWidth workers are running.
func (cl *cleanup) again(u pending) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.waiting = append(cl.waiting, u)
	if cl.workers < cleanUpWidth {
		cl.workers++
		go cl.work()
	}
}

// work tries the claims that are due until none is left. It pauses after a try that did
// not settle its claim, because an outage can leave thousands of claims. A hanging call
// delays only its own worker.
func (cl *cleanup) work() {
	for u, ok := cl.next(); ok; u, ok = cl.next() {
		settled, _ := cl.try(&u)
		cl.tried(u, settled)
		if !settled {
			time.Sleep(cleanUpPause)
		}
	}
}

// next returns the claim that has been due for longest. If no claim is due, it
// subtracts the calling worker from workers.
func (cl *cleanup) next() (u pending, ok bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if len(cl.waiting) == 0 {
		cl.workers--
		return u, false
	}
	u, cl.waiting[0] = cl.waiting[0], u
	cl.waiting = cl.waiting[1:]
	return u, true
}

// wait waits until all claims are settled or ctx is done, and reports whether all
// claims are settled.
func (cl *cleanup) wait(ctx context.Context) bool {
	cl.mu.Lock()
	idle := cl.pending.zero()
	cl.mu.Unlock()
	return done(ctx, idle)
}

func (cl *cleanup) size() int {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.pending.n
}

// try makes one try to release u, with a second call if the first succeeds and u is
// unsure. If the store refuses u's record with ErrInvalid, the substitute replaces the
// record. try reports whether u is settled, by the store's answer or by the end of u's
// time. first is the result of the first call, or of its repetition with the substitute.
func (cl *cleanup) try(u *pending) (settled bool, first error) {
	ctx, cancel := context.WithTimeout(context.Background(), budget(u.claim.TTL))
	defer cancel()
	c := u.claim.Claim
	if !u.unsure {
		c.TTL = 0 // no request is in flight that a tombstone would have to reject
	}
	err := cl.calls.store.Release(ctx, c)
	if says(ctx, err, ErrInvalid) && u.claim.shorten() {
		c.Record = u.claim.Record
		err = cl.calls.store.Release(ctx, c)
	}
	first = err
	if err == nil && u.unsure {
		c.Record = nil // the first call has saved the record
		// The release of a hold leaves no tombstone, and an earlier acquire may still
		// arrive. Only a second release, which is answered "not held", makes the store
		// refuse that acquire.
		err = cl.calls.store.Release(ctx, c)
	}
	over := err == nil && !u.unsure || answered(ctx, err)
	if !over && time.Now().Before(u.until) {
		return false, first // an unsure claim is released again until the answer is "not held"
	}
	if u.unsure {
		if says(ctx, err, ErrLost) {
			err = nil
		}
		of := *u // a copy: only the copy escapes to the heap
		cl.events.observe(ctx, Event{Kind: CleanedUp, Name: u.claim.name, Mode: u.claim.mode, Err: err, of: &of})
	}
	return true, first
}
