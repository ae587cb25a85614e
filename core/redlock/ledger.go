package redlock

import (
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// ledger remembers what is unsettled between leases and nodes: requests on their
// way, and those that ended without an answer and may still arrive. It keeps a
// late answer of one attempt from undoing the next one. A lease of which nothing
// is unsettled is not in it.
type ledger struct {
	mu      sync.Mutex
	n       int
	serial  uint64
	entries map[hold]*entry
	sweepAt int
}

// hold names a claim.
type hold struct{ key, lease string }

type entry struct {
	marks     []mark
	last      uint64 // serial of the last acquire
	ttl       time.Duration
	until     time.Time     // when what may still arrive has ended
	extending int           // extensions that may still give it to nodes that lack it
	over      bool          // it was released meanwhile
	back      chan struct{} // closed when the next acquire has come back; nil unless asked for
}

// mark is what is unsettled at one node.
type mark struct {
	asking  int           // acquires on their way
	leaving int           // releases on their way
	ending  int           // those among them that also see to what is answered meanwhile
	doubt   bool          // an acquire had no answer: it may still be granted
	banned  bool          // a release was not answered: it may still arrive
	owed    int           // releases that the janitor has still to send
	last    uint64        // serial of the last acquire
	wanted  bool          // no release was sent since then
	buried  bool          // the node refuses what may still arrive
	quiet   chan struct{} // closed when no release is on its way; nil unless asked for
}

// ticket is an acquire on its way to one node.
type ticket struct {
	serial uint64
	quiet  <-chan struct{} // it is to be sent when this is closed; nil for at once
}

// remember is how long an unanswered request counts as able to arrive, at least.
const remember = time.Minute

func newLedger(n int) *ledger {
	return &ledger{n: n, entries: make(map[hold]*entry), sweepAt: 64}
}

// ask notes that c is being sent to node i. It is false if c must not be sent: a
// release that may arrive after it would take away what it got.
func (l *ledger) ask(c *core.Claim, i int) (ticket, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.issue(c, i)
}

func (l *ledger) issue(c *core.Claim, i int) (ticket, bool) {
	e := l.entry(c)
	m := &e.marks[i]
	if m.banned || m.owed > 0 {
		return ticket{}, false
	}
	l.serial++
	m.asking++
	m.last, e.last, m.wanted, m.buried = l.serial, l.serial, true, false
	e.ttl = max(e.ttl, c.TTL)
	if m.leaving > 0 && m.quiet == nil {
		m.quiet = make(chan struct{})
	}
	return ticket{l.serial, m.quiet}, true
}

// answer is what became of an acquire.
type answer struct {
	unknown  bool // it may still be granted
	holds    bool // it was granted
	unwanted bool // but is of no use to who asked
}

// fate is what becomes of what an acquire got.
type fate int

const (
	stays  fate = iota // or there is nothing
	leaves             // a release is on its way that sees to it
	gone               // a release has to be sent now, which is noted as on its way
)

// asked notes that an acquire has come back. What an older attempt got belongs to
// the newer one.
func (l *ledger) asked(c *core.Claim, i int, t ticket, a answer) fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	m := &e.marks[i]
	m.asking--
	if e.back != nil {
		close(e.back)
		e.back = nil
	}
	if a.unknown && !m.buried {
		m.doubt = true
		e.until = time.Now().Add(max(e.ttl, remember))
	}
	f := stays
	switch {
	case !a.holds || m.wanted && (!a.unwanted || m.last != t.serial):
	case m.ending > 0 && !m.wanted:
		f = leaves // another would take from it what it is to answer for
	default:
		m.leaving++
		m.wanted, f = false, gone
	}
	l.drop(c, e)
	return f
}

// crowded returns what is closed when the next acquire of c has come back, or nil
// if no more than a few nodes have one on its way.
func (l *ledger) crowded(c *core.Claim, few int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[hold{c.Key, c.Lease}]
	if e == nil {
		return nil
	}
	for _, m := range e.marks {
		if m.asking > 0 {
			few--
		}
	}
	if few >= 0 {
		return nil
	}
	return e.nextBack()
}

func (e *entry) nextBack() <-chan struct{} {
	if e.back == nil {
		e.back = make(chan struct{})
	}
	return e.back
}

// end notes that c is released, so that no extension gives it to anybody.
func (l *ledger) end(c *core.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[hold{c.Key, c.Lease}]; e != nil {
		e.over = true
	}
}

// extending notes that claims are being extended, and extended that this is over.
func (l *ledger) extending(claims []core.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range claims {
		l.entry(&claims[i]).extending++
	}
}

func (l *ledger) extended(claims []core.Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range claims {
		e := l.entry(&claims[i])
		e.extending--
		l.drop(&claims[i], e)
	}
}

// heal is ask for an extension: it is false too if c was released since it began.
func (l *ledger) heal(c *core.Claim, i int) (ticket, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entry(c).over {
		return ticket{}, false
	}
	return l.issue(c, i)
}

// last returns the serial of the last acquire, 0 if nothing of c is unsettled.
func (l *ledger) last(c *core.Claim) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[hold{c.Key, c.Lease}]; e != nil {
		return e.last
	}
	return 0
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

func (l *ledger) entry(c *core.Claim) *entry {
	at := hold{c.Key, c.Lease}
	e := l.entries[at]
	if e == nil {
		l.sweep()
		e = &entry{marks: make([]mark, l.n)}
		l.entries[at] = e
	}
	return e
}

// drop forgets e if nothing of it is unsettled.
func (l *ledger) drop(c *core.Claim, e *entry) {
	for _, m := range e.marks {
		if m.asking > 0 || m.leaving > 0 || m.owed > 0 || m.doubt || m.banned {
			return
		}
	}
	if e.extending == 0 {
		delete(l.entries, hold{c.Key, c.Lease})
	}
}

// sweep forgets what has ended, whenever there is twice as much as the last
// time.
func (l *ledger) sweep() {
	if len(l.entries) < l.sweepAt {
		return
	}
	now := time.Now()
	for at, e := range l.entries {
		busy := e.extending > 0
		for _, m := range e.marks {
			busy = busy || m.asking > 0 || m.leaving > 0 || m.owed > 0
		}
		if !busy && now.After(e.until) {
			delete(l.entries, at)
		}
	}
	l.sweepAt = max(64, 2*len(l.entries))
}
