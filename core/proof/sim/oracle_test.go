package sim_test

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// verdict lists violations by kind.
type verdict map[string][]string

func (v verdict) add(kind, format string, args ...any) {
	v[kind] = append(v[kind], fmt.Sprintf(format, args...))
}

const (
	overlaps    = "overlaps"
	tokensBack  = "tokens back"
	staleWrites = "stale writes"
	eternalKeys = "keys without TTL"
	stuckWaits  = "stuck waiters"
	lateExtends = "extensions after release"
	leftBehind  = "left behind"
	twice       = "done twice"
	answersVary = "answers that differ"
	historyBad  = "impossible histories"
	passedOn    = "passed on without asking"
	untrue      = "untrue releases"
)

var kinds = []string{
	overlaps, tokensBack, staleWrites, eternalKeys, stuckWaits, lateExtends, leftBehind, twice, answersVary, historyBad,
	passedOn, untrue,
}

func (j *journal) judge() verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	v := verdict{}
	j.forgetDoubled()
	byKey := make(map[string][]*hold)
	for _, h := range j.holds {
		byKey[h.key] = append(byKey[h.key], h)
	}
	for key, holds := range byKey {
		slices.SortStableFunc(holds, func(a, b *hold) int { return cmp.Compare(a.from, b.from) })
		j.judgeOverlaps(v, key, holds)
		judgeTokens(v, key, holds)
	}
	j.judgeRanges(v)
	for key, r := range j.registers {
		judgeWrites(v, key, r)
	}
	j.judgeRuns(v)
	j.judgeAnswers(v)
	for _, h := range j.holds {
		j.judgeRelease(v, h)
	}
	for _, report := range j.wrong {
		report(v)
	}
	if j.late > 0 {
		v.add(lateExtends, "%d extensions of leases after their release", j.late)
	}
	for _, s := range j.left {
		v.add(leftBehind, "%s", s)
	}
	for _, s := range j.stuck {
		v.add(stuckWaits, "%s", s)
	}
	return v
}

// forgetDoubled ignores the store's confirmations of a hold after a wipe, if a
// duplicated acquire may have created the hold again.
func (j *journal) forgetDoubled() {
	for _, h := range j.holds {
		if h.passed && slices.ContainsFunc(j.wipes, func(w time.Duration) bool {
			return h.grant.asked <= w && w <= h.asked && j.doubledIn(w, h.from)
		}) {
			h.asked = h.grant.asked
		}
	}
}

func (j *journal) doubledIn(from, until time.Duration) bool {
	return slices.ContainsFunc(j.doubled, func(d time.Duration) bool { return from <= d && d <= until })
}

// endOf returns the time until which h counts. A wipe of the server voids the earlier
// grants, because exclusion depends on the server's memory.
func (j *journal) endOf(h *hold) time.Duration {
	if lost := j.lostAt(h.asked); lost >= 0 {
		return min(h.until, lost)
	}
	return h.until
}

// judgeOverlaps checks each hold at the moment it begins: the weights of other owners'
// holds plus its own weight must not exceed its limit.
func (j *journal) judgeOverlaps(v verdict, key string, holds []*hold) {
	for _, h := range holds {
		if j.endOf(h) <= h.from {
			continue
		}
		others := make(map[int]*hold)
		for _, o := range holds {
			if o.owner != h.owner && o.from <= h.from && h.from < j.endOf(o) {
				if had := others[o.owner]; had == nil || had.weight < o.weight {
					others[o.owner] = o
				}
			}
		}
		sum := h.weight
		for _, o := range others {
			sum += o.weight
		}
		if sum <= h.limit {
			continue
		}
		for _, o := range others {
			v.add(overlaps, "%s: client %d holds %d of %d from %v (asked at %v), while client %d holds %d from %v until %v",
				key, h.client, h.weight, h.limit, h.from, h.asked, o.client, o.weight, o.from, j.endOf(o))
		}
	}
}

// after reports whether h is later than o. Either the store received h's request after o
// had begun, or the hold of o was passed on to h.
func (h *hold) after(o *hold) bool {
	return o.from < h.asked || h.grant != nil && h.grant == o.grant && o.from < h.from
}

// judgeRanges checks the token ranges of every two grants of a key to different owners.
// One grant must have all its tokens below the tokens of the other grant. If the first
// grant was answered before the request of the second, the first must have the lower
// tokens. The server may repeat tokens if it was wiped between two requests that were
// in flight together.
func (j *journal) judgeRanges(v verdict) {
	for i, b := range j.granted {
		for _, a := range j.granted[:i] {
			if a.key != b.key || a.token == 0 || b.token == 0 || a.owner == b.owner {
				continue
			}
			low, high := a, b
			if b.asked <= a.got && b.token < a.token {
				low, high = b, a
			}
			wiped := slices.ContainsFunc(j.wipes, func(w time.Duration) bool { return min(a.asked, b.asked) <= w && w <= max(a.got, b.got) })
			if !low.owns(high.token) && low.token < high.token || b.asked <= a.got && wiped {
				continue
			}
			v.add(tokensBack, "%s: client %d was granted %d at %v, asked for at %v, and client %d was granted %d at %v",
				a.key, b.client, b.token, b.got, b.asked, a.client, a.token, a.got)
		}
	}
}

// judgeTokens checks that a lease has a higher token than each lease that had begun
// before its request, regardless of the server's failures in between. A lease that
// re-enters must have the same token as its outer lease.
func judgeTokens(v verdict, key string, holds []*hold) {
	for _, h := range holds {
		if h.outer != nil && h.token != h.outer.token {
			v.add(tokensBack, "%s: client %d has re-entered %d with token %d at %v", key, h.client, h.outer.token, h.token, h.from)
		}
		if h.token == 0 || h.outer != nil {
			continue
		}
		for _, o := range holds {
			if o.token != 0 && o.owner != h.owner && h.after(o) && o.token >= h.token {
				v.add(tokensBack, "%s: client %d has token %d, asked for at %v, client %d had %d at %v",
					key, h.client, h.token, h.asked, o.client, o.token, o.from)
			}
		}
	}
}

// judgeWrites checks that no holder writes after a later holder of the key has written.
func judgeWrites(v verdict, key string, r *register) {
	var last write
	for _, w := range r.accepted {
		if last.by != nil && last.by.owner != w.by.owner && last.by.after(w.by) {
			v.add(staleWrites, "%s: client %d, holder since %v, wrote at %v, after client %d, holder since %v, at %v",
				key, w.by.client, w.by.from, w.at, last.by.client, last.by.from, last.at)
		}
		if last.by == nil || w.by.from > last.by.from {
			last = w
		}
	}
}

// judgeRelease checks releases of exclusive holds that returned nil, if no answer to
// their requests is in doubt. The hold must still have existed at the store when
// Release was called. So the server must not have lost it before.
func (j *journal) judgeRelease(v verdict, h *hold) {
	if h.grant == nil || h.freed < 0 || h.result != nil || j.unsure[h.claim] {
		return
	}
	for _, w := range j.wipes {
		if h.grant.got < w && w < h.let && !j.doubledIn(w, h.freed) {
			v.add(untrue, "%s: client %d has released at %v what was forgotten at %v", h.key, h.client, h.let, w)
		}
	}
}

// judgeRuns checks that no two runs of one key overlap. A call that begins after the
// return of an answer must make no run. A wipe of the server excuses both.
func (j *journal) judgeRuns(v verdict) {
	end := func(w *work) time.Duration {
		if lost := j.lostAt(w.called); lost >= 0 {
			return min(w.until, lost)
		}
		return w.until
	}
	for i, a := range j.works {
		for _, b := range j.works[i+1:] {
			if a.key == b.key && max(a.from, b.from) < min(end(a), end(b)) {
				v.add(overlaps, "%s: run from %v until %v beside another from %v until %v", a.key, a.from, end(a), b.from, end(b))
			}
		}
		for _, o := range j.answers {
			if o.ok && o.key == a.key && o.until < a.called && j.lostAt(o.from) < 0 {
				v.add(twice, "%s: a run began at %v, although it was answered at %v", a.key, a.from, o.until)
			}
		}
	}
}

// judgeAnswers checks that all calls of a key that succeed have the same answer, unless
// the server was wiped.
func (j *journal) judgeAnswers(v verdict) {
	for i, a := range j.answers {
		for _, b := range j.answers[i+1:] {
			if a.ok && b.ok && a.key == b.key && a.value != b.value && j.lostAt(a.from) == j.lostAt(b.from) &&
				j.lostAt(a.until) == j.lostAt(a.from) && j.lostAt(b.until) == j.lostAt(b.from) {
				v.add(answersVary, "%s: %q at %v and %q at %v", a.key, a.value, a.until, b.value, b.until)
			}
		}
	}
}

// judgeWaits checks that after the last fault no program waits longer than limit for a
// key that is not held.
func (j *journal) judgeWaits(quiet, limit time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.waits {
		from := max(w.from, quiet)
		if w.until-from <= limit {
			continue
		}
		// busy lists the intervals in which the key was held, by their start.
		var busy [][2]time.Duration
		for _, h := range j.holds {
			if h.key == w.key && h.freed > from && h.asked < w.until {
				busy = append(busy, [2]time.Duration{h.asked, h.freed})
			}
		}
		slices.SortFunc(busy, func(a, b [2]time.Duration) int { return cmp.Compare(a[0], b[0]) })
		idle := from
		for _, b := range append(busy, [2]time.Duration{w.until, w.until}) {
			if b[0]-idle > limit {
				j.stuck = append(j.stuck, fmt.Sprintf("%s: somebody waits from %v until %v (%s), and nobody holds from %v until %v",
					w.key, w.from, w.until, w.outcome, idle, b[0]))
				break
			}
			idle = max(idle, b[1])
		}
	}
}
