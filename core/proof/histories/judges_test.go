package histories_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// overlaps implements the interval oracle. An interval is the time for which a process
// relied on a key. overlaps lists the intervals that overlap an earlier interval of the
// key. An interval begins with the return of Acquire. It ends at Release, or earlier at
// the deadline that Acquire and the extensions set.
func overlaps(tries []*try) []string {
	held := granted(tries)
	slices.SortFunc(held, func(a, b *try) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Ret, b.Ret)) })
	var faults []string
	var last *try // the try of this key so far whose interval ends last
	for _, t := range held {
		if t.Until < t.Ret {
			continue // the process never relied on the lease
		}
		if last != nil && last.Key != t.Key {
			last = nil
		}
		if last != nil && t.Ret <= last.Until {
			faults = append(faults, fmt.Sprintf("%s: %s holds from %d, while %s holds from %d until %d", t.Key, t.Lease, t.Ret, last.Lease, last.Ret, last.Until))
		}
		if last == nil || t.Until > last.Until {
			last = t
		}
	}
	return faults
}

// tokensBack lists grants whose token is not greater than the token of an earlier
// grant. The earlier grant has returned before the request of the later grant.
func tokensBack(tries []*try) []string {
	held := granted(tries)
	byEnd := slices.Clone(held)
	slices.SortFunc(held, func(a, b *try) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.asked(), b.asked())) })
	slices.SortFunc(byEnd, func(a, b *try) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Ret, b.Ret)) })
	var faults []string
	i, highest := 0, (*try)(nil)
	for n, t := range held {
		if n > 0 && held[n-1].Key != t.Key {
			highest = nil
		}
		for ; i < len(byEnd) && (byEnd[i].Key < t.Key || byEnd[i].Key == t.Key && byEnd[i].Ret < t.asked()); i++ {
			if byEnd[i].Key == t.Key && (highest == nil || byEnd[i].Token > highest.Token) {
				highest = byEnd[i]
			}
		}
		if highest != nil && t.Token <= highest.Token {
			faults = append(faults, fmt.Sprintf("%s: %s has token %d, %s before it had %d", t.Key, t.Lease, t.Token, highest.Lease, highest.Token))
		}
	}
	return faults
}

// tokensShared lists pairs of grants of a key that share a token. It also lists pairs
// of successive grants in which the first grant has the greater tokens. Two grants are
// successive if the first had returned before the request of the second. It omits
// grants that share a token if the server may have lost data between the first request
// and the last answer. Such a server may repeat the tokens of simultaneous requests.
func tokensShared(r *record) []string {
	type granted struct {
		*claim
		call
	}
	var all []granted
	for _, c := range r.claims {
		var last call // from the first request, because a later release may grant the claim
		for _, o := range c.calls {
			if o.What == "ask" && last.Call == 0 {
				last.Call = o.Call
			}
			if o.What == "ask" && o.Outcome == "ok" {
				last.Ret = o.Ret
			}
		}
		if c.token > 0 {
			all = append(all, granted{c, last})
		}
	}
	slices.SortFunc(all, func(a, b granted) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.token, b.token)) })
	var faults []string
	var asked granted // the grant of this key so far that was requested last
	for i, g := range all {
		if i == 0 || all[i-1].Key != g.Key {
			asked = g
			continue
		}
		if low := all[i-1]; g.token < low.token+store.TokenStep && !r.forgot(min(low.Call, g.Call), max(low.Ret, g.Ret)) {
			faults = append(faults, fmt.Sprintf("%s: the grants of %s and %s have the tokens %d and %d", g.Key, low.ID, g.ID, low.token, g.token))
		}
		if g.Ret < asked.Call {
			faults = append(faults, fmt.Sprintf("%s: the grant of %s has token %d, that of %s before it had %d", g.Key, asked.ID, asked.token, g.ID, g.token))
		}
		if g.Call > asked.Call {
			asked = g
		}
	}
	return faults
}

// chainTime is the maximum time for which a hold is passed on, counted from the arrival
// of its grant.
const chainTime = 10 * time.Millisecond

// passedWrongly lists leases that were passed a hold, or passed it on, against the
// rules. It compares only events of one process. When Acquire returns, the process knows
// of the grant. When Release returns, the process knows whether the release failed.
func passedWrongly(claims []*claim) []string {
	var faults []string
	for _, c := range claims {
		if c.try == nil {
			continue
		}
		add := func(t *try, format string, args ...any) {
			faults = append(faults, fmt.Sprintf("%s: %s, with a hold that was passed on, ", c.Key, t.Lease)+fmt.Sprintf(format, args...))
		}
		if n := 1 + len(c.more); n > store.TokenStep {
			add(c.last(), "is lease %d of it", n)
		}
		left := int64(math.MaxInt64) // time of the first request to release it
		for _, o := range c.calls {
			if o.What == "leave" {
				left = min(left, o.Call)
			}
		}
		before, failed := c.try, int64(math.MaxInt64)
		for _, t := range c.more {
			if t.Token <= before.Token || t.Token >= c.first()+store.TokenStep {
				add(t, "has token %d, %s before it had %d, and the grant %d", t.Token, before.Lease, before.Token, c.first())
			}
			if t.Ret <= before.Until {
				add(t, "holds from %d, while %s holds until %d", t.Ret, before.Lease, before.Until)
			}
			if left < t.Ret {
				add(t, "holds from %d, and the store was asked to release it at %d", t.Ret, left)
			}
			if before.letGo == 0 {
				add(t, "follows %s, which was not released", before.Lease)
				before = t
				continue
			}
			if failed < before.letGo {
				add(t, "follows %s, released at %d, and another release had failed at %d", before.Lease, before.letGo, failed)
			}
			if age := time.Duration(before.letGo - c.try.Ret); age > chainTime {
				add(t, "follows %s when the grant is %v old", before.Lease, age)
			}
			if before.Released == "ok" && !c.confirmed(before) {
				add(t, "follows %s, whose release the store did not confirm after it", before.Lease)
			}
			if before.Released != "ok" && before.ReleaseRet > 0 {
				failed = min(failed, before.ReleaseRet)
			}
			before = t
		}
	}
	return faults
}

// confirmed reports whether the store confirmed, between the call and the return of the
// release of t, that c was held. An unanswered release may have released the hold. The
// next release then does not find the hold, and counts the hold as released by the
// earlier release.
func (c *claim) confirmed(t *try) bool {
	return slices.ContainsFunc(c.calls, func(o call) bool {
		says := o.Outcome == "ok" || o.What == "leave" && o.Outcome == "unknown"
		return (o.What == "extend" || o.What == "leave") && says && t.letGo <= o.Call && o.Ret <= t.ReleaseRet
	})
}

// staleWrites lists a holder's writes after a write of its successor, in the order of the
// resource. The successor is a process that was granted the key after the writer. If
// fenced is true, it ignores the writes that the resource refused. It also lists the
// writes of a lease that was never granted.
func staleWrites(tries []*try, writes []write, fenced bool) []string {
	by := make(map[string]*try)
	for _, t := range tries {
		by[t.Lease] = t
	}
	var faults []string
	newest := make(map[string]*try) // by key: the writer so far that was requested last
	for _, w := range writes {
		if fenced && !w.Taken {
			continue
		}
		t := by[w.Lease]
		if t == nil {
			faults = append(faults, fmt.Sprintf("%s: %s wrote and was never granted", w.Key, w.Lease))
			continue
		}
		if n := newest[w.Key]; n != nil && n != t && (t.Ret < n.asked() || n.claim != nil && n.claim == t.claim && t.Ret < n.Ret) {
			faults = append(faults, fmt.Sprintf("%s: %s wrote after its successor %s", w.Key, t.Lease, n.Lease))
		}
		if n := newest[w.Key]; n == nil || t.asked() > n.asked() || t.asked() == n.asked() && t.Ret > n.Ret {
			newest[w.Key] = t
		}
	}
	return faults
}

func granted(tries []*try) []*try {
	var held []*try
	for _, t := range tries {
		if t.Outcome == "ok" {
			held = append(held, t)
		}
	}
	return held
}

// toOthers returns, for each key, how often the next holder was a different goroutine.
func toOthers(tries []*try) map[string]int {
	held := granted(tries)
	slices.SortFunc(held, func(a, b *try) int { return cmp.Compare(a.Ret, b.Ret) })
	n, last := make(map[string]int), make(map[string]string)
	for _, t := range held {
		if before, ok := last[t.Key]; ok && before != t.Who {
			n[t.Key]++
		}
		last[t.Key] = t.Who
	}
	return n
}
