package redlock

import (
	"slices"
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

// departure is a release that is being sent to a node, and may wait until acquires
// that are on their way have come back.
type departure struct {
	unsure bool          // an acquire may arrive after it
	ttl    time.Duration // which could ask for this

	begin  func()
	timer  *time.Timer // when it begins anyway
	serial uint64      // of the last acquire that it waits for
	left   int         // how many of them have not come back
}

// resign is leave for a release of all nodes, whose end is left with ended set.
func (l *ledger) resign(c *core.Claim, i int) *departure {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := new(departure)
	d.unsure, d.ttl = l.leaving(c, i)
	l.entry(c).marks[i].ending++
	return d
}

// follow has d wait, and is false if there is nothing to wait for, or only what
// itself waits for a release.
func (l *ledger) follow(c *core.Claim, i int, d *departure) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.entry(c).marks[i]
	if m.asking == 0 || m.quiet != nil {
		return false
	}
	d.serial, d.left = l.serial, m.asking
	m.following = append(m.following, d)
	return true
}

// unfollow has d wait no more, and is false if it does not.
func (l *ledger) unfollow(c *core.Claim, i int, d *departure) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.entry(c).marks[i]
	n := len(m.following)
	m.following = slices.DeleteFunc(m.following, func(o *departure) bool { return o == d })
	return len(m.following) < n
}

// cameBack returns what has waited for the acquire t and begins now.
func (m *mark) cameBack(t ticket) (now []*departure) {
	if len(m.following) == 0 {
		return nil
	}
	m.following = slices.DeleteFunc(m.following, func(d *departure) bool {
		if t.serial <= d.serial {
			d.left--
		}
		if d.left > 0 {
			return false
		}
		d.unsure = m.doubt
		now = append(now, d)
		return true
	})
	return now
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
