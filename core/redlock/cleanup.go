package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

const (
	cleanupPause = 100 * time.Millisecond // between tries at a node that does not answer
	silentPause  = time.Second            // between tries at a silent node
	resendLimit  = 3 * time.Second        // before the release of a claim that is not sent again
	maxTasks     = 4096                   // further tasks are dropped; their claims expire
	cleanupWidth = 64                     // the maximum number of tries that begin at once
)

// cleanup releases claims at single nodes in the background, until the node has answered
// or its hold of the claim has expired. A task that has to leave a tombstone ends in two
// cases: the node has answered that it lacks the claim, or no acquire of the claim can
// arrive any more. More than maxTasks tasks, and the tasks of a closed Store, are
// dropped.
type cleanup struct {
	store *Store

	mu      sync.Mutex
	tasks   []task
	running bool
	added   chan struct{} // receives when a task is due before wake; nil unless running
	wake    time.Time     // the end of the current sleep of work; zero while it works
	// resume has the time of the next try at each node whose last try had no answer. It
	// is zero for the other nodes. So many tasks at a node that is down cost one try a
	// pause.
	resume []time.Time
}

// task is the release of one claim at one node.
type task struct {
	claim        store.Claim
	node         int
	at           time.Time
	until        time.Time
	tombstone    bool   // the release is sent until it has left a tombstone at the node
	unlessResent bool   // skip the task if the claim was sent again
	last         uint64 // with unlessResent: the serial of the claim's last acquire
}

// now adds a task that releases c at node i at once. If tombstone is set, the node also
// has to refuse c afterwards. The release must have been recorded as planned
// (releaseOutcome.again).
func (u *cleanup) now(c store.Claim, i int, tombstone bool) {
	at, life := time.Now(), c.TTL
	if tombstone {
		life = max(life, arrivalLimit)
	}
	u.add(task{claim: c, node: i, at: at, until: at.Add(life), tombstone: tombstone})
}

// later adds a task that releases c at node i after resendLimit, and makes the node
// refuse c afterwards. The task is dropped if c is sent again before that, or if no
// request of c is unanswered by then.
func (u *cleanup) later(c store.Claim, i int) {
	at := time.Now().Add(resendLimit)
	u.add(task{
		claim: c, node: i, at: at, until: at.Add(max(c.TTL, arrivalLimit)), tombstone: true,
		unlessResent: true, last: u.store.requests.lastSerial(&c),
	})
}

func (u *cleanup) add(t task) {
	t.claim.Wait, t.claim.Keep, t.claim.Record = false, 0, nil
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.tasks) >= maxTasks || u.store.ctx.Err() != nil {
		u.drop(t)
		return
	}
	u.tasks = append(u.tasks, t)
	if u.running {
		if u.due(t).Before(u.wake) {
			u.awake()
		}
		return
	}
	u.running, u.added = true, make(chan struct{}, 1)
	u.store.run(u.work)
}

// due returns the time of the next try of t. The caller holds the mutex.
func (u *cleanup) due(t task) time.Time {
	if r := u.resume[t.node]; r.After(t.at) {
		return r
	}
	return t.at
}

// awake ends the sleep of work. The caller holds the mutex.
func (u *cleanup) awake() {
	select {
	case u.added <- struct{}{}:
	default:
	}
}

// tried records whether node i has answered a try.
func (u *cleanup) tried(i int, answered bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case !answered:
		u.resume[i] = time.Now().Add(u.pause(i))
	case !u.resume[i].IsZero():
		u.resume[i] = time.Time{}
		if u.running {
			u.awake()
		}
	}
}

// pause returns the pause after a try at node i that had no answer.
func (u *cleanup) pause(i int) time.Duration {
	if u.store.nodes[i].isSilent() {
		return silentPause
	}
	return cleanupPause
}

// drop records that t is finished or abandoned.
func (u *cleanup) drop(t task) {
	if !t.unlessResent {
		u.store.requests.plannedDone(&t.claim, t.node)
	}
}

func (u *cleanup) work() {
	for {
		due, wait, left := u.take()
		if !left {
			return
		}
		if len(due) > 0 {
			u.tryAll(due)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-u.added:
		case <-u.store.ctx.Done():
		}
		timer.Stop()
	}
}

// take removes and returns tasks that are due, at most cleanupWidth of them, and one for
// a node whose last try had no answer. It drops tasks whose time has passed. wait is the
// time until the next task is due. left is false if no task is left or the Store is
// closed.
func (u *cleanup) take() (due []task, wait time.Duration, left bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.tasks) == 0 || u.store.ctx.Err() != nil {
		for _, t := range u.tasks {
			u.drop(t)
		}
		u.tasks, u.running = nil, false
		return nil, 0, false
	}
	now := time.Now()
	wait = time.Hour
	rest := u.tasks[:0]
	for _, t := range u.tasks {
		switch d := u.due(t).Sub(now); {
		case now.After(t.until):
			u.drop(t)
			continue
		case d <= 0 && len(due) < cleanupWidth:
			due = append(due, t)
			if !u.resume[t.node].IsZero() {
				u.resume[t.node] = now.Add(u.pause(t.node))
			}
			continue
		default:
			wait = min(wait, max(d, 0))
		}
		rest = append(rest, t)
	}
	clear(u.tasks[len(rest):])
	u.tasks, u.wake = rest, time.Time{}
	switch {
	case len(due) > 0:
	case len(rest) == 0:
		wait = 0
	default:
		u.wake = now.Add(wait)
	}
	return due, wait, true
}

// tryAll tries the tasks in parallel. After the time-out of a node it returns without
// waiting for the nodes that have not answered.
func (u *cleanup) tryAll(due []task) {
	done := make(chan struct{}, len(due))
	for _, t := range due {
		u.try(t, func() { done <- struct{}{} })
	}
	timer := time.NewTimer(u.store.timeout)
	defer timer.Stop()
	for range due {
		select {
		case <-done:
		case <-timer.C:
			return
		}
	}
}

// try sends the release of t. It adds t again if the node may still need a release and
// the time of t has not passed.
func (u *cleanup) try(t task, done func()) {
	s := u.store
	var ttl time.Duration
	if t.unlessResent {
		var ok bool
		if ttl, ok = s.requests.releaseSentUnless(&t.claim, t.node, t.last); !ok {
			done()
			return
		}
	} else {
		_, ttl = s.requests.releaseSent(&t.claim, t.node)
	}
	t.claim.TTL = max(t.claim.TTL, ttl)
	if !t.tombstone {
		t.claim.TTL = 0
	}
	n := s.nodes[t.node]
	s.call(s.ctx, n, func(ctx context.Context) error {
		return n.store.Release(ctx, t.claim)
	}, func(err error) {
		defer done()
		k := kindOf(err)
		u.tried(t.node, k != unknown && k != failed)
		s.requests.releaseDone(&t.claim, t.node, releaseOutcome{unknown: k == unknown, tombstone: k == lost})
		again := k == unknown || k == failed || k == granted && t.tombstone
		if !again || time.Now().After(t.until) {
			u.drop(t)
			return
		}
		if t.at = time.Now(); k != granted {
			t.at = t.at.Add(u.pause(t.node))
		}
		u.add(t)
	})
}
