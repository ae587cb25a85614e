package histories_test

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// lock is the state of one key's lock, and asked what may happen to it.
//
// What nobody knows stays open, in the state instead of in many of them: a hold
// that ended otherwise than by a release that was confirmed may be gone from that
// moment on, or not yet (Loose); and an acquire that was not answered may have
// been granted at any time since (Ghosts), which then explains a busy answer.
type lock struct {
	Holder string // lease, "" if none
	Loose  bool   // it may have ended
	Ghosts bool   // somebody may hold it whom nobody knows
	Last   uint64 // token
}

type asked struct {
	What  string // "acquire", "busy", "unknown", "release" or "end"
	Lease string
	Token uint64
}

// model is a lock that a server with a memory keeps. Where the server may lose
// what it knew (wiped), a hold can end at any time, and tokens grow all the same.
func model(wiped bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lock{} },
		Step: func(state, input, _ any) (bool, any) {
			s, in := state.(lock), input.(asked)
			switch in.What {
			case "acquire":
				ok := (wiped || s.Holder == "" || s.Loose) && in.Token > s.Last
				return ok, lock{Holder: in.Lease, Last: in.Token, Ghosts: s.Ghosts}
			case "busy":
				return s.Holder != "" && s.Holder != in.Lease || s.Ghosts, s
			case "unknown":
				s.Ghosts = true
			case "release":
				if s.Holder != in.Lease || s.Loose {
					return wiped, s
				}
				s.Holder = ""
			case "end":
				s.Loose = s.Loose || s.Holder == in.Lease
			}
			return true, s
		},
		Partition: byKey,
		DescribeOperation: func(input, _ any) string {
			in := input.(asked)
			if in.Token > 0 {
				return fmt.Sprintf("%s %s, token %d", in.What, in.Lease, in.Token)
			}
			return in.What + " " + in.Lease
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// byKey splits a history: each operation carries its key as output.
func byKey(all []porcupine.Operation) [][]porcupine.Operation {
	by := make(map[string][]porcupine.Operation)
	for _, o := range all {
		by[o.Output.(string)] = append(by[o.Output.(string)], o)
	}
	var parts [][]porcupine.Operation
	for _, part := range by {
		parts = append(parts, part)
	}
	return parts
}

// operations is what the tries look like to the model.
func operations(tries []*try) []porcupine.Operation {
	clients := make(map[string]int)
	var all []porcupine.Operation
	add := func(t *try, what string, call, ret int64) {
		name := t.Who
		if what == "end" || what == "unknown" {
			name += "?" // beside what the client goes on with
		}
		if _, ok := clients[name]; !ok {
			clients[name] = len(clients)
		}
		in := asked{What: what, Lease: t.Lease}
		if what == "acquire" {
			in.Token = t.Token
		}
		all = append(all, porcupine.Operation{ClientId: clients[name], Input: in, Call: call, Output: t.Key, Return: max(ret, call+1)})
	}
	for _, t := range tries {
		if t.Outcome != "ok" && (t.Outcome != "busy" || t.Unknown > 0) {
			add(t, "unknown", t.Call, t.Call)
		}
		switch {
		case t.Outcome == "busy" && t.Crowded: // it may be the answer to who stood before it
		case t.Outcome == "busy":
			add(t, "busy", t.Call, t.Ret)
		case t.Outcome == "ok":
			add(t, "acquire", t.Call, t.Ret)
			if t.Released == "ok" {
				add(t, "release", t.ReleaseCall, t.ReleaseRet)
			} else {
				add(t, "end", max(t.Until, t.Ret), 0)
			}
		}
	}
	return all
}
