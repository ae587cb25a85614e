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

// A process passes a hold on for at most chainTime after the grant arrived. When the
// hold is passed on, the last confirmed request to the store was sent at most unasked
// ago. The limit is a fiftieth of the hold's validity if that is shorter.
const (
	chainTime = 10 * time.Millisecond
	unasked   = 10 * time.Millisecond
)

// hold is an interval in which a process relied on a key.
type hold struct {
	key      string
	client   int
	owner    int   // the same for all holders that may hold the key together
	outer    *hold // set for a nested hold
	claim    string
	grant    *grant // set for an exclusive hold that is not nested
	weight   int64
	limit    int64
	token    uint64
	asked    time.Duration // time of the granted or, if passed on, last confirmed request
	from     time.Duration // the time at which Acquire returned
	until    time.Duration // the earlier of the call of Release and the end of the lease's context
	let      time.Duration // the time of the call of Release
	freed    time.Duration // the time at which Release returned
	result   error         // the error that Release returned
	shown    bool          // the lease's owner was read
	extended bool          // the caller has extended the lease
	passed   bool          // the lease began with a hold that was passed on
}

// grant is a hold at the store. Several leases of a process can use one grant, one
// after the other. The first lease requested the grant, and its hold was passed on to
// the later leases.
type grant struct {
	key       string
	client    int
	lease     string // the lease of the claim
	owner     string
	fair      bool
	token     uint64
	asked     time.Duration // the time of the request
	got       time.Duration // the time of the answer
	confirmed time.Duration // the time of the last request that the store has confirmed
	valid     time.Duration // the validity, counted from confirmed
	leaving   bool          // the store received a request to release the grant
	tried     time.Duration // the time of the last release that was not answered
	released  time.Duration // time of the last release that seems to have taken effect
	ended     time.Duration // time after which no lease may begin; 0: none
	why       string        // the reason for ended
	leases    int           // the number of leases that have begun under the grant
	pending   int           // the number of their releases that are in flight
	last      *hold         // the last hold that began under the grant
}

// end records that after the time at no lease may begin under g.
func (g *grant) end(at time.Duration, why string) {
	if g.ended == 0 {
		g.ended, g.why = at, why
	}
}

// joins reports whether g is a further hold of its owner.
func (g *grant) joins() bool { return g.owner != g.lease }

// owns reports whether token is one of g's tokens.
func (g *grant) owns(token uint64) bool { return g.token <= token && token < g.token+store.TokenStep }

// asks reports whether g may be extended although the last lease under g is being
// released. An earlier lease's release may extend g, to learn whether the hold still
// exists. The last lease's own release may extend g while it offers the hold to a
// waiter.
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

// question records the request to the store by which a worker's Acquire was granted.
type question struct {
	lease      string
	asked, got time.Duration
}

type write struct {
	by *hold
	at time.Duration
}

// register is a resource that refuses tokens lower than the highest token that it has
// seen.
type register struct {
	highest  uint64
	accepted []write
	refused  int
}

// wait is an Acquire that has returned, with or without a lease.
type wait struct {
	key         string
	from, until time.Duration
	granted     bool
	outcome     string
}

// answer is the result of a Do.
type answer struct {
	key         string
	from, until time.Duration
	value       string // the value of a Do that succeeded
	ok          bool
}

// work is an interval in which the fn of a Do ran under a context that was not done.
type work struct {
	key         string
	called      time.Duration // the time of the call of Do
	from, until time.Duration
}

// journal records the events that the run's oracles judge.
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
	placed    map[string]time.Duration // by lease and key: last request of a waiter
	granted   []*grant                 // exclusive grants, in order
	grants    map[string]*grant        // each claim's last grant, by lease
	ended     map[string]time.Duration // by claim: time of Release, if no later lease used it
	late      int                      // the number of extensions of claims after their release
	unsure    map[string]bool          // by lease: more requests may have taken effect
	doubled   []time.Duration          // the times at which a duplicate arrived
	wrong     []func(v verdict)        // violations that were found at once
	calls     map[string]int           // the number of store calls, by outcome
	history   []call                   // the same calls one by one, if the scene needs them
	keep      bool
	left      []string // what still existed at the end of the run
	stuck     []string
}

func newJournal(now func() time.Duration) *journal {
	return &journal{
		now: now, registers: make(map[string]*register), placed: make(map[string]time.Duration),
		ended: make(map[string]time.Duration), calls: make(map[string]int),
		grants: make(map[string]*grant), unsure: make(map[string]bool),
	}
}

// admit records a grant. The same grant may be recorded again.
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

// begin records a hold, which lasts until end is called. The hold was granted to q, or
// passed on.
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

// grantOf returns the grant under which h, an exclusive hold, begins. This is the grant
// that h's own request received, or else the last grant of h's process that owns h's
// token.
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

// under records that h begins under g. Either h requested g, or the lease before h
// passed it on.
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
		"the previous lease's owner was read": before.shown,
		"the previous lease was extended":     before.extended,
		"the hold has a place":                g.fair,
		"the hold has joined another":         g.joins(),
		"an attempt is unanswered":            j.unsure[g.lease],
	} {
		if is {
			j.never(passedOn, "%s: %s", where, what)
		}
	}
	if g.token == 0 && h.token != 0 || g.token > 0 && (h.token <= before.token || !g.owns(h.token)) {
		j.never(tokensBack, "%s: it has token %d after %d, under a grant of %d", where, h.token, before.token, g.token)
	}
}

// never records a violation.
func (j *journal) never(kind, format string, args ...any) {
	j.wrong = append(j.wrong, func(v verdict) { v.add(kind, format, args...) })
}

// show records that h's owner may be known, and checks that owner names h's claim.
func (j *journal) show(h *hold, owner string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.shown = true
	if owner, _, _ = strings.Cut(owner, "."); owner != h.claim {
		j.never(passedOn, "%s: client %d is granted another claim than that of its owner", h.key, h.client)
	}
}

// letGo records that h is about to be released, and reports whether this was recorded
// before.
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

// end records that no process relies on h any more. Later calls change nothing.
func (j *journal) end(h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if h.until < 0 {
		h.until = j.now()
	}
}

// free records that h's release has returned.
func (j *journal) free(h *hold, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.freed, h.result = j.now(), err
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
		g.end(h.freed, fmt.Sprintf("an earlier release returned %q", err))
	}
	if j.keep && err == nil {
		j.history = append(j.history, call{op: "lease", client: h.client, key: h.key, lease: h.claim, from: h.let, until: h.freed, outcome: "released"})
	}
}

// extend records that h's caller is about to extend it under ctx. If ctx is done,
// nothing is sent.
func (j *journal) extend(ctx context.Context, h *hold) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h.extended = h.extended || ctx.Err() == nil
}

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

func (j *journal) wiped() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wipes = append(j.wipes, j.now())
}

// lostAt returns the time at which a wipe of the server lost the effect of a request.
// asked is the time of the request. Without a wipe after it, lostAt returns -1. A wipe
// also counts for requests that were in flight.
func (j *journal) lostAt(asked time.Duration) time.Duration {
	for _, w := range j.wipes {
		if w >= asked {
			return w
		}
	}
	return -1
}
