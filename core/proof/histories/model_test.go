package histories_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/lockkit/lockkit/core/store"
)

// lock is the state of one key's lock, as far as the answers to its users determine it.
// Other holds that may exist at the server are not part of it: see doubts_test.go.
type lock struct {
	Holder string // the holding claim, "" if none
	Lease  string // the claim's lease, "" between two leases, anyOf if unknown
	Loose  bool   // the server may have lost the hold
	Last   uint64 // the last known token of a lease
	Top    uint64 // the last token of the holder's grant, or Last if the grant may be lost
}

const anyOf = "any"

type asked struct {
	// What is "acquire", "busy", "release", or "end" for a hold that ended without a
	// release. After "end" other claims may have the key. A lease to which a hold was
	// passed on begins with "follow". The lease before it ends with "pass", or with
	// "let" if no answer confirmed that the hold still existed. If the server loses its
	// data, What is "forget", or "may forget" if the loss is uncertain. What is "holds"
	// if the server has returned to an earlier state with a hold that may expire soon.
	What  string
	Claim string
	Lease string
	Token uint64
	Grant uint64 // the first token of the claim's grant
	// Sure means for "release" and "pass" that the answer shows that the lease held the
	// key. For "follow" it means that no data was lost.
	Sure bool
}

// model describes a lock.
//
// If the server lost a hold, its holder continues for a while. Meanwhile other claims
// may have the key. In such a history, a successful release of a claim with an
// unanswered call does not show that the lease held the key. The unanswered call can be
// an earlier attempt of the release, whose lost reply was "not held". A lease has no
// hold if the server lost the hold that was passed to the lease.
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

// byKey splits a history by key. Each operation has its key as output.
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
	busy, excused int // busy answers that the script contains, and busy answers that it omits
}

func (s *script) add(who, key string, in asked, call, ret int64) {
	if _, ok := s.clients[who]; !ok {
		s.clients[who] = len(s.clients)
	}
	s.all = append(s.all, porcupine.Operation{ClientId: s.clients[who], Input: in, Call: call, Output: key, Return: max(ret, call+1)})
}

// operations returns the record's operations for the model. It omits a busy answer that a
// hold unknown to the model may have caused.
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
		case t.Outcome == "busy" && t.Crowded: // possibly another lease's answer
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
				// The end is concurrent to the client's later operations. The hold can
				// end before a process that was stopped receives its grant.
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

func (r *record) forgetful() bool {
	return slices.ContainsFunc(r.deeds, func(d deed) bool { return d.forgets() })
}

// sure reports whether the answer to the release of t shows that t held the key.
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

// stuck returns, for each key whose history no lock can explain, the first operation
// without an explanation.
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
