package histories_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/lockkit/lockkit/core/store"
)

// lock is the state of one key's lock, as far as it follows from what its users
// were told. Whatever else may be held at the server is no part of it: see
// doubts_test.go.
type lock struct {
	Holder string // claim, "" if none
	Lease  string // that has it, "" between two that it is passed on to, anyOf if that is not known
	Loose  bool   // the server may have forgotten it
	Last   uint64 // token of a lease
	Top    uint64 // the last token of the holder's grant, or Last if the server may have forgotten that
}

const anyOf = "any"

type asked struct {
	// What is "acquire", "busy", "release", or "end" for a hold that ended
	// otherwise, from when on others may have the key. A lease that was passed the
	// hold of another one is a "follow", and the one before it ends with "pass",
	// or "let" if it was not told that the hold was still there. Where the server
	// loses what it had it is "forget", "may forget" if that is not known, or
	// "holds" if it has what it had a while ago, which may expire soon.
	What  string
	Claim string
	Lease string
	Token uint64
	Grant uint64 // the first token of the claim's grant
	Sure  bool   // a release that ended a hold, and not an earlier attempt of it; or the server forgets nothing
}

// model is a lock.
//
// A holder that the server forgot goes on for a while, and others have the key
// meanwhile. Its release counts only if the store has confirmed it at once: the first
// attempt may have been answered "not held" by a reply that was lost. A lease holds
// nothing either if the hold that it was passed was forgotten by the server.
var model = porcupine.Model{
	Init: func() any { return lock{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(lock), input.(asked)
		mine := s.Holder == in.Claim && (s.Lease == in.Lease || s.Lease == anyOf)
		switch in.What {
		case "acquire":
			return (s.Holder == "" || s.Loose) && (in.Grant > s.Top || s.Loose && in.Grant > s.Last) && in.Token == in.Grant,
				lock{Holder: in.Claim, Lease: in.Lease, Last: in.Token, Top: in.Grant + store.TokenStep - 1}
		case "follow":
			if s.Holder != in.Claim {
				return !in.Sure, s
			}
			ok := s.Lease == "" && s.Last < in.Token && in.Token <= s.Top || s.Lease == anyOf
			s.Lease, s.Last = in.Lease, max(s.Last, in.Token)
			return ok, s
		case "busy":
			return s.Holder != "" && s.Holder != in.Claim, s
		case "pass":
			if !mine {
				return !in.Sure, s
			}
			s.Lease = ""
		case "let":
			if mine {
				s.Lease = ""
			}
		case "release":
			if !mine {
				return !in.Sure, s
			}
			s.Holder = ""
		case "end":
			if s.Holder == in.Claim {
				s.Holder = ""
			}
		case "forget":
			s.Holder, s.Top = "", s.Last
		case "may forget":
			s.Loose = true
		case "holds":
			s.Holder, s.Lease, s.Loose, s.Top = in.Claim, anyOf, true, s.Last
		}
		if s.Loose && s.Holder == "" {
			s.Loose, s.Top = false, s.Last
		}
		if s.Holder == "" {
			s.Lease = ""
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

// script is a record as the model sees it.
type script struct {
	all           []porcupine.Operation
	clients       map[string]int
	busy, excused int // busy answers that are in it, and that are not
}

func (s *script) add(who, key string, in asked, call, ret int64) {
	if _, ok := s.clients[who]; !ok {
		s.clients[who] = len(s.clients)
	}
	s.all = append(s.all, porcupine.Operation{ClientId: s.clients[who], Input: in, Call: call, Output: key, Return: max(ret, call+1)})
}

// operations is what the record looks like to the model. A busy answer that can
// have come from a process that the model does not know is left out.
func (r *record) operations() *script {
	s := &script{clients: make(map[string]int)}
	doubts := r.doubts()
	busy := func(who, key, claim string, call, ret int64) {
		if within(doubts.all[key], call, ret) {
			s.excused++
			return
		}
		s.busy++
		s.add(who, key, asked{What: "busy", Claim: claim}, call, ret)
	}
	for _, t := range r.tries {
		switch {
		case t.Outcome == "busy" && t.Crowded: // it may be the answer to another that stood before it
		case t.Outcome == "busy":
			busy(t.Who, t.Key, t.holder(), t.Call, t.Ret)
		case t.Outcome == "ok":
			begin := asked{What: "acquire", Claim: t.holder(), Lease: t.Lease, Token: t.Token, Grant: t.Token}
			if t.Follows {
				begin.What, begin.Sure = "follow", !r.forgetful()
			} else if t.claim != nil {
				begin.Grant = t.claim.first()
			}
			s.add(t.Who, t.Key, begin, t.Call, t.Ret)
			release, end := "release", "end"
			if t.passed() {
				release, end = "pass", "let"
			}
			if t.Released == "ok" {
				s.add(t.Who, t.Key, asked{What: release, Claim: t.holder(), Lease: t.Lease, Sure: r.sure(t)}, t.ReleaseCall, t.ReleaseRet)
			} else {
				// Beside what the client goes on with. It can be over before a process that
				// stood still hears that it was granted.
				s.add(t.Who+"?", t.Key, asked{What: end, Claim: t.holder(), Lease: t.Lease}, max(t.Until, t.Call), 0)
			}
		}
	}
	for _, c := range r.claims {
		for _, o := range c.calls {
			if o.What == "ask" && o.Outcome == "busy" {
				busy(c.Who+"'s store", c.Key, c.ID, o.Call, o.Ret)
			}
		}
	}
	for _, t := range doubts.turns {
		s.add("nemesis", t.key, t.asked, t.deed.From, t.deed.To)
	}
	return s
}

// forgetful tells that the server may have lost what it had.
func (r *record) forgetful() bool {
	return slices.ContainsFunc(r.deeds, func(d deed) bool { return d.forgets() })
}

// sure tells whether the answer to the release of t shows that t held the key.
func (r *record) sure(t *try) bool {
	if !r.forgetful() || t.claim == nil {
		return true
	}
	for _, d := range r.deeds {
		if d.What == "fail over" && d.From <= t.ReleaseRet && d.To >= min(t.Call, t.claim.try.Call) {
			return false
		}
	}
	for _, o := range t.claim.calls {
		if o.Outcome == "unknown" {
			return false
		}
	}
	return true
}

// stuck says of each key that is no lock's how far it went and what comes next.
func stuck(info porcupine.LinearizationInfo, s *script) string {
	var text []string
	for _, part := range info.PartialLinearizationsOperations() {
		var best []porcupine.Operation
		for _, p := range part {
			if len(p) > len(best) {
				best = p
			}
		}
		done := make(map[porcupine.Operation]bool)
		for _, o := range best {
			done[o] = true
		}
		var next *porcupine.Operation
		for i, o := range s.all {
			if len(best) > 0 && o.Output == best[0].Output && !done[o] && (next == nil || o.Return < next.Return) {
				next = &s.all[i]
			}
		}
		if next != nil {
			text = append(text, fmt.Sprintf("%s: nothing explains {%s} from %d to %d", next.Output, model.DescribeOperation(next.Input, nil), next.Call, next.Return))
		}
	}
	return strings.Join(text, "; ")
}
