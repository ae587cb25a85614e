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
	until     time.Time // when what may still arrive has ended
	extending int       // extensions that may still give it to nodes that lack it
	over      bool      // it was released meanwhile
}

// mark is what is unsettled at one node.
type mark struct {
	asking  int           // acquires on their way
	leaving int           // releases on their way
	doubt   bool          // an acquire had no answer: it may still be granted
	banned  bool          // a release was not answered: it may still arrive
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
	if m.banned {
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

// asked notes that an acquire has come back. If what it got has to go, it also
// notes that a release is on its way, and is true. What an older attempt got
// belongs to the newer one.
func (l *ledger) asked(c *core.Claim, i int, t ticket, a answer) (gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	m := &e.marks[i]
	m.asking--
	if a.unknown && !m.buried {
		m.doubt = true
		e.until = time.Now().Add(max(e.ttl, remember))
	}
	if a.holds && (!m.wanted || a.unwanted && m.last == t.serial) {
		m.leaving++
		m.wanted, gone = false, true
	}
	l.drop(c, e)
	return gone
}

// leave notes that a release of c is being sent to node i. Unsure says that an
// acquire may arrive there after it, which could ask for ttl.
func (l *ledger) leave(c *core.Claim, i int) (unsure bool, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	m := &e.marks[i]
	m.leaving++
	m.wanted = false
	return m.doubt || m.asking > 0, e.ttl
}

// left notes that a release has come back. Unanswered says that it may still
// arrive, settled that the node now refuses what may still arrive.
func (l *ledger) left(c *core.Claim, i int, unanswered, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c)
	m := &e.marks[i]
	if m.leaving--; m.leaving == 0 && m.quiet != nil {
		close(m.quiet)
		m.quiet = nil
	}
	if unanswered {
		m.banned = true
		e.until = time.Now().Add(max(e.ttl, remember))
	}
	if settled {
		m.doubt, m.buried = false, true
	}
	l.drop(c, e)
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

// banned tells that a release of c may still arrive at node i.
func (l *ledger) banned(c *core.Claim, i int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[hold{c.Key, c.Lease}]
	return e != nil && e.marks[i].banned
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
		if m.asking > 0 || m.leaving > 0 || m.doubt || m.banned {
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
			busy = busy || m.asking > 0 || m.leaving > 0
		}
		if !busy && now.After(e.until) {
			delete(l.entries, at)
		}
	}
	l.sweepAt = max(64, 2*len(l.entries))
}
