package sim_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// A hold is passed on within a process for this long, from when its grant has
// arrived, and if the store was asked for it within this time.
const (
	chainTime = 10 * time.Millisecond
	unasked   = 10 * time.Millisecond
)

// hold is a stretch of time in which a process relied on a key.
type hold struct {
	key      string
	client   int
	owner    int   // one for all holders that may hold it together
	outer    *hold // of one that is nested
	claim    string
	grant    *grant // of an exclusive one that is not nested
	weight   int64
	limit    int64
	token    uint64
	asked    time.Duration // when the store was asked the question that it granted; of one that was passed on, the last one that it confirmed
	from     time.Duration // when Acquire returned
	until    time.Duration // when Release was called, or the lease's context ended
	let      time.Duration // when Release was called
	freed    time.Duration // when Release returned
	told     error         // what it said
	shown    bool          // its owner was told
	extended bool          // its caller has extended it
	passed   bool          // it began with a hold that was passed on
}

// grant is a hold at the store, which leases of a process can have one after the
// other: the first has asked for it, and it is passed on to the others.
type grant struct {
	key       string
	client    int
	lease     string // of the claim
	owner     string
	fair      bool
	token     uint64
	asked     time.Duration // when the store was asked for it
	got       time.Duration // when the answer came
	confirmed time.Duration // when the store was asked the last question that it has confirmed
	valid     time.Duration // for how long, from then on
	leaving   bool          // the store was asked to release it
	tried     time.Duration // when the store was asked the last release without an answer
	released  time.Duration // when the store was asked the last release that it has confirmed, or so it seems
	ended     time.Duration // from when on no lease may begin under it, 0 for never
	why       string        // of that
	leases    int           // that have begun under it
	pending   int           // releases of them that are under way
	last      *hold         // of them
}

// end says that no lease begins under g after this.
func (g *grant) end(at time.Duration, why string) {
	if g.ended == 0 {
		g.ended, g.why = at, why
	}
}

// joins tells that g is a further hold of its owner.
func (g *grant) joins() bool { return g.owner != g.lease }

// owns tells that g's token and those after it have this one.
func (g *grant) owns(token uint64) bool { return g.token <= token && token < g.token+store.TokenStep }

// asks tells that g may be extended although the last lease that began under it
// is being released: for one before that, whose release has to know whether the
// hold was there, or while the last one offers it to a waiter.
func (g *grant) asks() bool {
	if g == nil {
		return false
	}
	earlier := g.pending
	if g.last != nil && g.last.let >= 0 && g.last.freed < 0 {
		earlier--
	}
	return earlier > 0 || g.pending > 0 && !g.leaving
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
	placed    map[string]time.Duration // by lease and key: the last question that left it waiting
	granted   []*grant                 // exclusive ones, in order
	grants    map[string]*grant        // the last of each claim's, by lease
	ended     map[string]time.Duration // by claim: when Release was called, and no lease followed
	late      int                      // extensions of a claim after that
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
		now: now, registers: make(map[string]*register), placed: make(map[string]time.Duration),
		ended: make(map[string]time.Duration), calls: make(map[string]int),
		grants: make(map[string]*grant), unsure: make(map[string]bool),
	}
}

// admit notes a grant. The same one may come again.
func (j *journal) admit(g *grant) {
	if old := j.grants[g.lease]; old != nil && old.key == g.key && old.token == g.token {
		if old.last != nil {
			j.never(passedOn, "%s: client %d asks at %v for a claim that a lease had at %v", g.key, g.client, g.confirmed, old.last.from)
		}
		old.got, old.confirmed, old.valid = g.got, g.confirmed, g.valid
		return
	}
	j.grants[g.lease] = g
	j.granted = append(j.granted, g)
}

// begin notes a hold, which lasts until end. It is that of the question, or one
// that was passed on.
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
		if g := j.grantOf(h, q); g != nil {
			j.under(h, g)
		}
	}
	if h.claim == "" {
		j.never(overlaps, "%s: client %d has a lease that the store knows nothing of", h.key, h.client)
	}
	j.holds = append(j.holds, h)
	if j.keep && h.passed {
		j.history = append(j.history, call{op: "lease", client: h.client, key: h.key, lease: h.claim, token: h.token, from: h.from, until: h.from, outcome: "begun"})
	}
	return h
}

// grantOf is the grant that h, an exclusive hold, begins under: the one that it
// has asked for, or else the last one of its process that owns its token.
func (j *journal) grantOf(h *hold, q *question) *grant {
	if h.weight != store.All {
		return nil
	}
	own := j.grants[q.lease]
	if own != nil && own.last == nil && own.token == h.token && h.token > 0 {
		return own
	}
	for _, g := range slices.Backward(j.granted) {
		if g.client == h.client && g.key == h.key && !g.joins() && g.owns(h.token) {
			return g
		}
	}
	return own
}

// under has h begin under g, which it has asked for, or which was passed on by the
// lease before it.
func (j *journal) under(h *hold, g *grant) {
	before := g.last
	h.claim, h.grant, h.asked = g.lease, g, g.asked
	g.last = h
	g.leases++
	if before == nil {
		if h.token != g.token {
			j.never(tokensBack, "%s: client %d has token %d, and was granted %d", h.key, h.client, h.token, g.token)
		}
		return
	}
	h.passed, h.asked = true, g.confirmed
	delete(j.ended, g.lease)
	where := fmt.Sprintf("%s: client %d, at %v", h.key, h.client, h.from)
	if before.until < 0 {
		j.never(overlaps, "%s: two leases have one hold", where)
	}
	if g.leases > store.TokenStep {
		j.never(passedOn, "%s: it is lease %d under one hold", where, g.leases)
	}
	if ago := h.from - g.got; ago > chainTime {
		j.never(passedOn, "%s: the grant is %v old", where, ago)
	}
	if ago := h.from - g.confirmed; ago > min(unasked, g.valid/50) {
		j.never(passedOn, "%s: the store was last asked %v ago, of %v", where, ago, g.valid)
	}
	if g.ended > 0 && h.from > g.ended {
		j.never(passedOn, "%s: %s at %v", where, g.why, g.ended)
	}
	for what, is := range map[string]bool{
		"somebody may join by the owner of the lease before": before.shown,
		"the lease before was extended by its caller":        before.extended,
		"the hold has a place in a fair queue":               g.fair,
		"the hold has joined that of another owner":          g.joins(),
		"the hold has an attempt without an answer":          j.unsure[g.lease],
	} {
		if is {
			j.never(passedOn, "%s: %s", where, what)
		}
	}
	if g.token == 0 && h.token != 0 || g.token > 0 && (h.token <= before.token || !g.owns(h.token)) {
		j.never(tokensBack, "%s: it has token %d after %d, under a grant of %d", where, h.token, before.token, g.token)
	}
}

// never notes what must not be.
func (j *journal) never(kind, format string, args ...any) {
	j.wrong = append(j.wrong, func(v verdict) { v.add(kind, format, args...) })
}

// show notes that the owner of h, which was said to be this, may be known.
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
	}
	if h.grant != nil {
		h.grant.pending++
	}
	return false
}

// end notes that no process relies on h any more, unless that was noted before.
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
	g := h.grant
	if g == nil {
		return
	}
	g.pending--
	switch {
	case g.last == h:
	case err == nil && g.confirmed < h.let && g.released < h.let:
		j.never(untrue, "%s: client %d has released at %v a lease whose hold was passed on, and the store did not confirm it after that", h.key, h.client, h.let)
	case err != nil:
		g.end(h.freed, fmt.Sprintf("a release before was told %q", err))
	}
	if j.keep && err == nil {
		j.history = append(j.history, call{op: "lease", client: h.client, key: h.key, lease: h.claim, from: h.let, until: h.freed, outcome: "released"})
	}
}

// extend notes that h's caller is about to extend it under ctx. Under one that has
// ended nothing is sent.
func (j *journal) extend(ctx context.Context, h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.extended = h.extended || ctx.Err() == nil
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
