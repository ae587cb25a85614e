package histories_test

import "sync"

// history is what the workers said, in the order in which it came.
type history struct {
	mu      sync.Mutex
	entries []entry
	calls   int // acquires and releases that came to an end
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

// try is an acquire and what became of it.
type try struct {
	Lease, Who, Key string
	Call, Ret       int64 // Ret is 0 if the worker died before
	Outcome         string
	Token           uint64
	Unknown         int
	Crowded         bool

	// Of one that was granted: until when its holder relied on it, and its release,
	// if that was begun.
	Until                   int64
	ReleaseCall, ReleaseRet int64
	Released                string
	letGo                   int64
}

// tries puts the entries together.
func (h *history) tries() []*try {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*try
	by := make(map[string]*try)
	for _, e := range h.entries {
		t := by[e.Lease]
		switch e.Step {
		case "call":
			t = &try{Lease: e.Lease, Who: e.Who, Key: e.Key, Call: e.Call, Crowded: e.Crowded, Outcome: "died"}
			by[e.Lease], all = t, append(all, t)
		case "acquire":
			t.Ret, t.Outcome, t.Token, t.Until = e.Ret, e.Outcome, e.Token, e.Until
			t.Unknown += e.Unknown
		case "hold":
			t.Until = max(t.Until, e.Until)
		case "letgo":
			t.letGo = e.Call
			t.Until = min(t.Until, e.Call)
		case "release":
			t.ReleaseCall, t.ReleaseRet, t.Released = t.letGo, e.Ret, e.Outcome
			t.Unknown += e.Unknown
		}
	}
	for _, t := range all {
		if t.letGo > 0 && t.ReleaseRet == 0 {
			t.ReleaseCall, t.Released = t.letGo, "died"
		}
	}
	return all
}

// failed tells that the nemesis got at t.
func (t *try) failed() bool {
	return t.Unknown > 0 || t.Outcome != "ok" && t.Outcome != "busy" ||
		t.Outcome == "ok" && t.Released != "ok"
}

// unknown is how many outcomes of t nobody knew, at least.
func (t *try) unknown() int {
	if t.Outcome == "died" || t.Outcome == "ok" && t.Released == "died" {
		return t.Unknown + 1
	}
	return t.Unknown
}

// end is when t was over, or the last that is known of it.
func (t *try) end() int64 { return max(t.Call, t.Ret, t.Until, t.ReleaseCall, t.ReleaseRet) }
