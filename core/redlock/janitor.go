package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

const (
	choreEvery = 100 * time.Millisecond // between tries at a node that does not answer
	choreIdle  = 3 * time.Second        // how long a claim may come again before it is taken for over
	maxChores  = 4096                   // what is more ends with its TTL
	choreWidth = 64                     // tries side by side
)

// janitor releases claims at single nodes in the background, until the node has
// answered or what it has of the claim has ended.
type janitor struct {
	store *Store

	mu     sync.Mutex
	chores []chore
	runs   bool
	bell   chan struct{} // receives when there is more to do; nil unless it runs
}

// chore is one claim at one node.
type chore struct {
	claim core.Claim
	node  int
	at    time.Time
	until time.Time
	bury  bool   // the node has to say that it has no such hold, and refuses it from then on
	idle  bool   // only if the claim was not sent since
	last  uint64 // serial of its acquire before that
}

// now has node i release c at once, and, if bury is set, refuse it from then on.
// The release is owed by then.
func (j *janitor) now(c core.Claim, i int, bury bool) {
	at, life := time.Now(), c.TTL
	if bury {
		life = max(life, remember)
	}
	j.add(chore{claim: c, node: i, at: at, until: at.Add(life), bury: bury})
}

// later has node i release and refuse c, if the claim has not come again.
func (j *janitor) later(c core.Claim, i int) {
	at := time.Now().Add(choreIdle)
	j.add(chore{claim: c, node: i, at: at, until: at.Add(max(c.TTL, remember)), bury: true, idle: true, last: j.store.ledger.last(&c)})
}

func (j *janitor) add(c chore) {
	c.claim.Wait, c.claim.Keep, c.claim.Record = false, 0, nil
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.chores) >= maxChores || j.store.ctx.Err() != nil {
		j.drop(c)
		return
	}
	j.chores = append(j.chores, c)
	if j.runs {
		select {
		case j.bell <- struct{}{}:
		default:
		}
		return
	}
	j.runs, j.bell = true, make(chan struct{}, 1)
	j.store.run(j.work)
}

// drop notes that c will not be done.
func (j *janitor) drop(c chore) {
	if !c.idle {
		j.store.ledger.paid(&c.claim, c.node)
	}
}

// work goes on until nothing is left to do, or the Store is closed.
func (j *janitor) work() {
	for {
		due, wait, left := j.take()
		if !left {
			return
		}
		if len(due) > 0 {
			j.round(due)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-j.bell:
		case <-j.store.ctx.Done():
		}
		timer.Stop()
	}
}

// take returns what is due, or how long nothing will be. It is false if there is
// nothing left.
func (j *janitor) take() (due []chore, wait time.Duration, left bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.chores) == 0 || j.store.ctx.Err() != nil {
		for _, c := range j.chores {
			j.drop(c)
		}
		j.chores, j.runs = nil, false
		return nil, 0, false
	}
	now := time.Now()
	wait = time.Hour
	rest := j.chores[:0]
	for _, c := range j.chores {
		switch d := c.at.Sub(now); {
		case d <= 0 && len(due) < choreWidth:
			due = append(due, c)
			continue
		default:
			wait = min(wait, max(d, 0))
		}
		rest = append(rest, c)
	}
	clear(j.chores[len(rest):])
	j.chores = rest
	return due, wait, true
}

// round tries some side by side, and keeps those that are not settled.
func (j *janitor) round(due []chore) {
	var all sync.WaitGroup
	for _, c := range due {
		all.Add(1)
		j.try(c, all.Done)
	}
	all.Wait()
}

func (j *janitor) try(c chore, done func()) {
	s := j.store
	var ttl time.Duration
	if c.idle {
		var ok bool
		if ttl, ok = s.ledger.leaveUnless(&c.claim, c.node, c.last); !ok {
			done()
			return
		}
	} else {
		_, ttl = s.ledger.leave(&c.claim, c.node)
	}
	c.claim.TTL = max(c.claim.TTL, ttl)
	if !c.bury {
		c.claim.TTL = 0
	}
	n := s.nodes[c.node]
	s.call(s.ctx, n, s.timeout, func(ctx context.Context) error {
		return n.store.Release(ctx, c.claim)
	}, func(err error) {
		defer done()
		k := kindOf(err)
		s.ledger.left(&c.claim, c.node, released{unknown: k == unknown, settled: k == lost})
		again := k == unknown || k == failed || k == granted && c.bury
		if !again || time.Now().After(c.until) {
			j.drop(c)
			return
		}
		c.at = time.Now().Add(choreEvery)
		if k == granted {
			c.at = time.Now()
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		j.chores = append(j.chores, c)
	})
}
