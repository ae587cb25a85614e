package redlock

import (
	"time"

	"github.com/lockkit/lockkit/core"
)

// leave notes that a release of c is being sent to node i. Unsure says that an
// acquire may arrive there after it, which could ask for ttl.
func (l *ledger) leave(c *core.Claim, i int) (unsure bool, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaving(c, i)
}

// resign is leave for a release of all nodes, whose end is left with ended set. If it
// is sent later, what leave returns is asked of unsure then.
func (l *ledger) resign(c *core.Claim, i int) (unsure bool, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	unsure, ttl = l.leaving(c, i)
	l.entry(c).marks[i].ending++
	return unsure, ttl
}

func (l *ledger) unsure(c *core.Claim, i int) (unsure bool, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	return e.marks[i].doubt || e.marks[i].asking > 0, e.ttl
}

// underway returns what is closed when the next acquire of c has come back, or nil
// if none is on its way to node i. It is nil too if a further one waits there for a
// release: the two would wait for each other.
func (l *ledger) underway(c *core.Claim, i int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[hold{c.Key, c.Lease}]
	if e == nil || e.marks[i].asking == 0 || e.marks[i].quiet != nil {
		return nil
	}
	return e.nextBack()
}

// leaveUnless is leave if c was not sent since its acquire with the serial last, and
// is still unsettled; else it is false and notes nothing.
func (l *ledger) leaveUnless(c *core.Claim, i int, last uint64) (ttl time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[hold{c.Key, c.Lease}]; e == nil || last == 0 || e.last != last {
		return 0, false
	}
	_, ttl = l.leaving(c, i)
	return ttl, true
}

func (l *ledger) leaving(c *core.Claim, i int) (unsure bool, ttl time.Duration) {
	e := l.entry(c)
	m := &e.marks[i]
	m.leaving++
	m.wanted = false
	return m.doubt || m.asking > 0, e.ttl
}

// released is what became of a release.
type released struct {
	unknown bool // it may still arrive
	settled bool // the node now refuses what may still arrive
	again   bool // a further one is owed, until paid
	ended   bool // it was noted by resign
}

// left notes that a release has come back.
func (l *ledger) left(c *core.Claim, i int, r released) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	m := &e.marks[i]
	if m.leaving--; m.leaving == 0 && m.quiet != nil {
		close(m.quiet)
		m.quiet = nil
	}
	if r.ended {
		m.ending--
	}
	if r.again {
		m.owed++
	}
	if r.unknown {
		m.banned = true
		e.until = time.Now().Add(max(e.ttl, remember))
	}
	if r.settled {
		m.doubt, m.buried = false, true
	}
	l.drop(c, e)
}

// paid notes that an owed release is not owed any more.
func (l *ledger) paid(c *core.Claim, i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	e.marks[i].owed--
	l.drop(c, e)
}

// banned tells that a release of c may still arrive at node i.
func (l *ledger) banned(c *core.Claim, i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[hold{c.Key, c.Lease}]
	return e != nil && (e.marks[i].banned || e.marks[i].owed > 0)
}
