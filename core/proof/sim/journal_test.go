package sim_test

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
)

// unasked is for how long a key may be passed on within a process without a
// question to the store.
const unasked = 10 * time.Millisecond

// hold is a stretch of time in which somebody relied on a key.
type hold struct {
	key    string
	client int
	owner  int   // one for all who may hold it together
	outer  *hold // of one that is nested
	claim  string
	grant  *grant // of one that was handed over
	weight int64
	limit  int64
	token  uint64
	asked  time.Duration // when the store was asked the question that it granted; of one that followed, the last one that it confirmed
	from   time.Duration // when Acquire returned
	until  time.Duration // when Release was called, or the lease's context ended
	let    time.Duration // when Release was called
	freed  time.Duration // when Release returned
	told   error         // what it said
	shown  bool          // somebody was told its owner
	follow bool          // it came after another one, and the store was not asked
}

// grant is what came of a hand-over: a hold at the store, which leases of a
// process can have one after the other.
type grant struct {
	lease     string
	token     uint64
	spare     int
	ttl       time.Duration
	got       time.Duration // when the answer came
	confirmed time.Duration // when the store was asked the last question that it has confirmed
	last      *hold         // that has or had it
	followed  int           // how many came after the first
}

// question is what a worker wants to know of the Acquire that was granted.
type question struct {
	lease      string
	asked, got time.Duration
}

// write is one that a register accepted.
type write struct {
	by *hold
	at time.Duration
}

// register is a resource that refuses older tokens than it has seen.
type register struct {
	highest  uint64
	accepted []write
	refused  int
}

// wait is an Acquire that returned, with a lease or without.
type wait struct {
	key         string
	from, until time.Duration
	granted     bool
	outcome     string
}

// answer is what a Do came to.
type answer struct {
	key         string
	from, until time.Duration
	value       string // of one that succeeded
	ok          bool
}

// work is a stretch in which the fn of a Do ran under a context that had not
// ended.
type work struct {
	key         string
	called      time.Duration // when Do was
	from, until time.Duration
}

// journal is what the run's oracles judge.
type journal struct {
	now func() time.Duration

	mu        sync.Mutex
	holds     []*hold
	registers map[string]*register
	waits     []wait
	answers   []answer
	works     []*work
	wipes     []time.Duration
	owners    int
	asked     map[string]time.Duration // by lease and key: the question that was granted
	placed    map[string]time.Duration // by lease and key: the last question that left it waiting
	handed    map[string]*grant        // by client and key: the last hand-over
	grants    map[string]*grant        // hand-overs by lease
	ended     map[string]time.Duration // by lease: when Release was called, and nobody came after it
	pending   map[string]int           // by lease: releases under way
	late      int                      // extensions of a lease after that
	unsure    map[string]bool          // by lease: more may have become of it than the answers say
	doubled   []time.Duration          // when something came a second time
	wrong     []func(v verdict)        // what must not be, and was seen at once
	calls     map[string]int           // of the stores, by outcome
	history   []call                   // the same one by one, if it is kept
	keep      bool
	left      []string // what was still there when all was over
	stuck     []string
}

func newJournal(now func() time.Duration) *journal {
	return &journal{
		now: now, registers: make(map[string]*register), asked: make(map[string]time.Duration),
		placed: make(map[string]time.Duration), ended: make(map[string]time.Duration), calls: make(map[string]int),
		handed: make(map[string]*grant), grants: make(map[string]*grant), pending: make(map[string]int), unsure: make(map[string]bool),
	}
}

// begin notes a hold, which lasts until end. It is that of the question, unless
// something was handed over since.
func (j *journal) begin(h *hold, q *question) *hold {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.from, h.until, h.let, h.freed = j.now(), -1, -1, -1
	h.claim, h.asked = q.lease, q.asked
	if h.outer != nil {
		h.owner = h.outer.owner
		h.outer.shown = true
	} else {
		j.owners++
		h.owner = j.owners
		if g := j.handed[fmt.Sprint(h.client, " ", h.key)]; g != nil && h.weight == core.All && g.got > q.got {
			j.inherit(h, g)
		}
	}
	if h.claim == "" {
		j.never(overlaps, "%s: client %d has a lease that the store knows nothing of", h.key, h.client)
	}
	j.holds = append(j.holds, h)
	if j.keep && h.follow {
		j.history = append(j.history, call{op: "tenant", client: h.client, key: h.key, lease: h.claim, from: h.from, until: h.from, outcome: "begun"})
	}
	return h
}

// inherit has h begin under what was handed over: to itself, or to somebody of
// its process whose lease has ended since.
func (j *journal) inherit(h *hold, g *grant) {
	h.claim, h.grant, h.asked = g.lease, g, j.asked[g.lease+" "+h.key]
	before := g.last
	g.last = h
	if before == nil {
		if h.token != g.token {
			j.never(tokensBack, "%s: client %d has token %d, and was handed %d", h.key, h.client, h.token, g.token)
		}
		return
	}
	h.follow, h.asked = true, g.confirmed
	g.followed++
	delete(j.ended, g.lease)
	if before.until < 0 {
		j.never(overlaps, "%s: client %d has two leases under one hold at %v", h.key, h.client, h.from)
	}
	if before.shown {
		j.never(passedOn, "%s: client %d, at %v: somebody may join it by the owner of the lease before", h.key, h.client, h.from)
	}
	if ago := h.from - g.confirmed; ago > min(unasked, g.ttl/50) {
		j.never(passedOn, "%s: client %d, at %v: the store was last asked %v ago, of a TTL of %v", h.key, h.client, h.from, ago, g.ttl)
	}
	if g.followed > g.spare {
		j.never(passedOn, "%s: client %d, at %v: %d leases came after the first, and %d were asked for", h.key, h.client, h.from, g.followed, g.spare)
	}
	if g.token > 0 && (h.token <= before.token || h.token > g.token+uint64(g.spare)) {
		j.never(tokensBack, "%s: client %d has token %d after %d, of %d to spare after %d", h.key, h.client, h.token, before.token, g.spare, g.token)
	}
}

// never notes what must not be.
func (j *journal) never(kind, format string, args ...any) {
	j.wrong = append(j.wrong, func(v verdict) { v.add(kind, format, args...) })
}

// show notes that somebody may know the owner of h, which was said to be this.
func (j *journal) show(h *hold, owner string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.shown = true
	if owner, _, _ = strings.Cut(owner, "."); owner != h.claim {
		j.never(passedOn, "%s: client %d is granted another claim than that of its owner", h.key, h.client)
	}
}

// letGo notes that h is about to be released, and whether it was before.
func (j *journal) letGo(h *hold) (again bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h.until < 0 {
		h.until = j.now()
	}
	if h.let >= 0 {
		return true
	}
	h.let = j.now()
	if h.outer == nil {
		j.ended[h.claim] = h.let
		j.pending[h.claim]++
	}
	return false
}

// end notes that nobody relies on h any more, if nobody has before.
func (j *journal) end(h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h.until < 0 {
		h.until = j.now()
	}
}

// free notes that h's release has returned.
func (j *journal) free(h *hold, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.freed, h.told = j.now(), err
	if h.outer != nil {
		return
	}
	j.pending[h.claim]--
	if j.keep && err == nil {
		j.history = append(j.history, call{op: "tenant", client: h.client, key: h.key, lease: h.claim, from: h.let, until: h.freed, outcome: "done"})
	}
}

// write has h write to the key's register.
func (j *journal) write(h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.registers[h.key]
	if r == nil {
		r = &register{}
		j.registers[h.key] = r
	}
	if h.token < r.highest {
		r.refused++
		return
	}
	r.highest = h.token
	r.accepted = append(r.accepted, write{h, j.now()})
}

// wiped notes that the server is empty.
func (j *journal) wiped() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wipes = append(j.wipes, j.now())
}

// lostAt is when the server forgot what it was asked for at the given time, -1
// if it did not. What was under way at that moment may have been forgotten.
func (j *journal) lostAt(asked time.Duration) time.Duration {
	for _, w := range j.wipes {
		if w >= asked {
			return w
		}
	}
	return -1
}
