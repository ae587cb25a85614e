package histories_test

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// history contains the workers' entries in the order of their arrival.
type history struct {
	mu      sync.Mutex
	entries []entry
	calls   int // completed acquires and releases
}

func (h *history) add(e entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, e)
	if e.Step == "acquire" || e.Step == "release" {
		h.calls++
	}
}

func (h *history) size() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

// record is a history as tries, claims and deeds.
type record struct {
	tries  []*try
	claims []*claim
	deeds  []deed
}

// try is an acquire with its outcome.
type try struct {
	Lease, Who, Key string
	Call, Ret       int64 // Ret is 0 if the worker died before
	Outcome         string
	Token           uint64
	Crowded         bool
	Follows         bool   // its hold was passed on to it
	Wrong           string // an impossible event that the process itself observed
	claim           *claim // nil if the store was not asked

	// The following fields are set for a granted try: the time until which its holder
	// relied on it, and its release, if that was called.
	Until                   int64
	ReleaseCall, ReleaseRet int64
	Released                string
	letGo                   int64
}

// claim contains the calls of one claim, as the store reported them.
type claim struct {
	ID       string
	Key, Who string // the process
	try      *try   // the first try with this claim, nil if there is none
	more     []*try // the tries to which the hold was passed on, in order
	token    uint64 // token of the grant, 0 if there is none
	calls    []call
}

// first returns the token of c's grant, or of its first lease if the grant's token is
// unknown.
func (c *claim) first() uint64 {
	if c.token > 0 || c.try == nil {
		return c.token
	}
	return c.try.Token
}

// last returns the last try that had the claim, nil if there is none.
func (c *claim) last() *try {
	if len(c.more) > 0 {
		return c.more[len(c.more)-1]
	}
	return c.try
}

// passed reports whether t's hold was passed on to another try.
func (t *try) passed() bool { return t.claim != nil && t.claim.last() != t }

// holder returns the store's name of t's claim, or t's lease if the store was not asked.
func (t *try) holder() string {
	if t.claim == nil {
		return t.Lease
	}
	return t.claim.ID
}

// asked returns the time of t's call of Acquire. If t follows another try, asked also
// looks at the claim's last request that was confirmed before t's Acquire returned. It
// then returns the earlier of the two times.
func (t *try) asked() int64 {
	if !t.Follows || t.claim == nil {
		return t.Call
	}
	confirmed := int64(0)
	for _, c := range t.claim.calls {
		if (c.What == "ask" || c.What == "extend") && c.Outcome == "ok" && c.Ret <= t.Ret {
			confirmed = max(confirmed, c.Call)
		}
	}
	return min(t.Call, confirmed)
}

type call struct {
	What      string
	Call, Ret int64
	Outcome   string
}

func (h *history) read(deeds []deed) *record {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &record{deeds: deeds}
	tries, claims := make(map[string]*try), make(map[string]*claim)
	of := func(e entry) *claim {
		c := claims[e.Claim]
		if c == nil {
			c = &claim{ID: e.Claim, Key: e.Key, Who: process(e.Who)}
			claims[e.Claim], r.claims = c, append(r.claims, c)
		}
		switch t := tries[e.Lease]; {
		case t == nil:
		case e.Follows:
			t.claim, c.more = c, append(c.more, t)
		default:
			t.claim, c.try = c, t
		}
		return c
	}
	for _, e := range h.entries {
		t := tries[e.Lease]
		switch e.Step {
		case "ask", "leave", "extend":
			c := of(e)
			if e.Step == "ask" && e.Outcome == "ok" {
				c.token = e.Token
			}
			c.calls = append(c.calls, call{e.Step, e.Call, e.Ret, e.Outcome})
		case "call":
			t = &try{Lease: e.Lease, Who: e.Who, Key: e.Key, Call: e.Call, Crowded: e.Crowded, Outcome: "died"}
			tries[e.Lease], r.tries = t, append(r.tries, t)
		case "acquire":
			t.Ret, t.Outcome, t.Token, t.Until, t.Follows, t.Wrong = e.Ret, e.Outcome, e.Token, e.Until, e.Follows, e.Wrong
			if e.Claim != "" {
				of(e)
			}
		case "hold":
			t.Until = max(t.Until, e.Until)
		case "letgo":
			t.letGo = e.Call
			t.Until = min(t.Until, e.Call)
		case "release":
			t.ReleaseCall, t.ReleaseRet, t.Released = t.letGo, e.Ret, e.Outcome
		}
	}
	for _, c := range r.claims {
		slices.SortFunc(c.more, func(a, b *try) int { return cmp.Compare(a.Token, b.Token) })
		if c.try == nil && len(c.more) > 0 {
			c.try, c.more = c.more[0], c.more[1:]
		}
	}
	for _, t := range r.tries {
		if t.letGo > 0 && t.ReleaseRet == 0 {
			t.ReleaseCall, t.Released = t.letGo, "died"
		}
	}
	return r
}

// process returns the process to which a goroutine belongs.
func process(who string) string {
	name, _, _ := strings.Cut(who, ".")
	return name
}

// failed reports whether t failed, its worker died, or one of its outcomes is unknown.
func (t *try) failed() bool {
	return t.unknown() > 0 || t.Outcome != "ok" && t.Outcome != "busy" ||
		t.Outcome == "ok" && t.Released != "ok"
}

// unknown returns the minimum number of t's unknown outcomes.
func (t *try) unknown() int {
	n := 0
	if t.Outcome == "died" || t.Outcome == "ok" && t.Released == "died" {
		n++
	}
	if t.claim != nil && !t.Follows {
		for _, c := range t.claim.calls {
			if c.Outcome == "unknown" {
				n++
			}
		}
	}
	return n
}

func (t *try) end() int64 { return max(t.Call, t.Ret, t.Until, t.ReleaseCall, t.ReleaseRet) }
