package histories_test

import (
	"cmp"
	"fmt"
	"slices"
)

// overlaps is the interval oracle: of one key, no two stretches overlap in which
// somebody relied on it, from the return of Acquire to the earlier of Release and
// the deadline that Acquire and the extensions gave.
func overlaps(tries []*try) []string {
	held := granted(tries)
	slices.SortFunc(held, func(a, b *try) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Ret, b.Ret)) })
	var faults []string
	var last *try // of those so far of this key, the one that ends last
	for _, t := range held {
		if t.Until < t.Ret {
			continue // it never relied on it
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

// tokensBack lists grants whose token is not greater than that of a grant which
// had returned before they were asked for.
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

// sharedTokens lists leases of one claim that do not have a token of their own each,
// greater than that of the one before.
func sharedTokens(claims []*claim) []string {
	var faults []string
	for _, c := range claims {
		held := granted(append([]*try{}, c.more...))
		if c.try != nil && c.try.Outcome == "ok" {
			held = append(held, c.try)
		}
		slices.SortFunc(held, func(a, b *try) int { return cmp.Compare(a.Ret, b.Ret) })
		for i, t := range held[min(1, len(held)):] {
			if before := held[i]; t.Token <= before.Token {
				faults = append(faults, fmt.Sprintf("%s: %s has token %d, %s before it under the same hold %d", c.Key, t.Lease, t.Token, before.Lease, before.Token))
			}
		}
	}
	return faults
}

// staleWrites lists the writes that a resource took, in its order, from a holder
// whose successor it had heard of before: who was granted the key after the
// writer had been. fenced says whether the resource compares tokens.
func staleWrites(tries []*try, writes []write, fenced bool) []string {
	by := make(map[string]*try)
	for _, t := range tries {
		by[t.Lease] = t
	}
	var faults []string
	newest := make(map[string]*try) // the writer so far of each key that asked last
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

// handOvers is how often the holder of each key was another goroutine than the one
// before, mostly of another process.
func handOvers(tries []*try) map[string]int {
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
