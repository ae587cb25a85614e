package sim_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

// strictTTL outlasts a run, so no hold expires during the run. The exceptions are the
// shorter holds that a release grants to a waiter.
const strictTTL = time.Hour

// strictly acquires and releases one of two keys n times. Only strictly uses these keys.
func (w *worker) strictly(n int) {
	for range n {
		time.Sleep(lasting(w.r, time.Millisecond, 2*time.Second))
		if w.r.IntN(4) == 0 {
			w.rush(fmt.Sprint("strict:", w.r.IntN(2)), strictTTL)
			continue
		}
		ctx, cancel, _ := w.terms()
		opts := []core.AcquireOption{core.TTL(strictTTL)}
		if w.r.IntN(3) == 0 {
			opts = append(opts, core.Wait(0))
		}
		if lease, h := w.acquire(ctx, nil, fmt.Sprint("strict:", w.r.IntN(2)), store.All, store.All, opts...); lease != nil {
			time.Sleep(lasting(w.r, time.Millisecond, time.Second))
			w.release(lease, h)
		}
		cancel()
	}
}

// lock is the state of a model lock: its holder's claim, the last token of that claim or
// a lower bound of it, and the claims that may not be granted any more.
type lock struct {
	holder string
	last   uint64
	exact  bool // last is the last token of the holder's grant
	dead   string
	ends   time.Duration // when the hold expires unless it is extended; 0 if it outlasts the run
}

func (l lock) isDead(lease string) bool { return strings.Contains(l.dead, " "+lease+" ") }

func (l lock) bury(lease string) lock {
	if !l.isDead(lease) {
		all := append(strings.Fields(l.dead), lease)
		slices.Sort(all)
		l.dead = " " + strings.Join(all, " ") + " "
	}
	return l
}

// somebody stands for a holder that is not known yet. A release may grant the key to one
// of the waiters for a short time.
const somebody = "?"

// free returns the possible states of a lock after its holder has gone.
func (l lock) free() []lock {
	return []lock{{holder: "", last: l.last, exact: true, dead: l.dead}, {holder: somebody, last: l.last, exact: true, dead: l.dead}}
}

// after returns the possible states of a lock after a call, or nothing if the call's
// answer was impossible. The lock's hold may have expired before the call.
func (l lock) after(c call) []lock {
	all := l.then(c)
	if l.ends > 0 && c.until >= l.ends {
		for _, free := range l.free() {
			all = append(all, free.then(c)...)
		}
	}
	return all
}

func (l lock) then(c call) []lock {
	same, none := []lock{l}, []lock(nil)
	mine, open := l.holder == c.lease, l.holder == "" || l.holder == somebody
	switch c.op + " " + c.outcome {
	case "acquire granted":
		last := c.token + store.TokenStep - 1
		switch {
		case open && !l.isDead(c.lease) && c.token > l.last,
			mine && l.exact && last == l.last,
			mine && !l.exact && c.token > l.last:
			return []lock{{c.lease, last, true, l.dead, c.ends}}
		}
		return none
	case "acquire busy":
		if l.holder == "" || mine {
			return none
		}
	case "acquire lost":
		if !l.isDead(c.lease) {
			return none
		}
	case "acquire unknown":
		if open && !l.isDead(c.lease) {
			return []lock{l, {c.lease, l.last, false, l.dead, 0}}
		}
	case "extend done":
		if !mine {
			return none
		}
		l.ends = 0
		return []lock{l}
	case "lease begun":
		// The first token of a grant belongs to the lease that requested the grant.
		if !mine || !l.exact || c.token > l.last || c.token+store.TokenStep-1 <= l.last {
			return none
		}
	case "lease released":
		if !mine {
			return none
		}
	case "extend lost":
		if mine {
			return none
		}
	case "release done":
		if mine || open {
			return l.free()
		} // otherwise the claim had a place in the queue
	case "release lost":
		if mine {
			return none
		}
		if c.remembers {
			l = l.bury(c.lease)
		}
		if open {
			return l.free()
		}
		return []lock{l}
	case "release unknown":
		switch {
		case mine:
			return append(l.free(), l)
		case c.remembers && open:
			return append(l.bury(c.lease).free(), l)
		case c.remembers:
			return []lock{l, l.bury(c.lease)}
		}
	}
	return same
}

// model describes the lock for the checker. Each key is a separate lock.
var model = (&porcupine.NondeterministicModel{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[string][]porcupine.Operation)
		for _, o := range all {
			key := o.Input.(call).key
			byKey[key] = append(byKey[key], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{lock{}} },
	Step: func(state, input, _ any) []any {
		var all []any
		for _, l := range state.(lock).after(input.(call)) {
			all = append(all, l)
		}
		return all
	},
	Equal: func(a, b any) bool { return a == b },
}).ToModel()

// operations returns the history of strictly's keys. A call with an unknown outcome may
// still take effect at any later time.
func operations(history []call) []porcupine.Operation {
	var all []porcupine.Operation
	for i, c := range history {
		if !strings.HasPrefix(c.key, "strict:") || c.op == "extend" && c.outcome != "done" && c.outcome != "lost" {
			continue
		}
		until := int64(c.until)
		if c.outcome == "unknown" {
			until = math.MaxInt64
		}
		all = append(all, porcupine.Operation{ClientId: i, Input: c, Output: c.outcome, Call: int64(c.from), Return: until})
	}
	return all
}

// stuck returns, for each key, the end of the longest part of a history that a lock can
// explain, followed by the first calls that no lock can explain.
func stuck(all []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model, all, 20*time.Second)
	var text strings.Builder
	for _, part := range info.PartialLinearizationsOperations() {
		var best []porcupine.Operation
		for _, p := range part {
			if len(p) > len(best) {
				best = p
			}
		}
		done := make(map[int]bool)
		for _, o := range best {
			done[o.ClientId] = true
		}
		var left []porcupine.Operation
		for _, o := range all {
			if len(best) > 0 && o.Input.(call).key == best[0].Input.(call).key && !done[o.ClientId] && o.Return < math.MaxInt64 {
				left = append(left, o)
			}
		}
		if len(left) == 0 {
			continue
		}
		for _, o := range best[max(0, len(best)-10):] {
			fmt.Fprintf(&text, "\n%+v", o.Input)
		}
		slices.SortFunc(left, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		for _, o := range left[:min(len(left), 5)] {
			fmt.Fprintf(&text, "\nunexplained: %+v", o.Input)
		}
	}
	return text.String()
}

// TestHistories checks that the answers to all clients are consistent with one lock per
// key. Calls with an unknown outcome may have taken effect or not.
func TestHistories(t *testing.T) {
	t.Parallel()
	check := func(s scene) (result, porcupine.CheckResult, int) {
		s.strict = true
		res := run(t, s)
		all := operations(res.journal.history)
		return res, porcupine.CheckOperationsTimeout(model, all, 20*time.Second), len(all)
	}
	if *seedFlag > 0 {
		_, verdict, n := check(scene{seed: *seedFlag})
		t.Logf("%d operations: %v", n, verdict)
	}
	seeds, calls, open := count(100, 5000), 0, 0
	sum := newSummary()
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		res, verdict, n := check(scene{seed: seed})
		sum.mu.Lock()
		calls += n
		if verdict == porcupine.Unknown {
			open++
		}
		sum.mu.Unlock()
		if verdict == porcupine.Illegal {
			res.verdict.add(historyBad, "no lock answers like this: %s", stuck(operations(res.journal.history)))
		}
		sum.add(t, scene{seed: seed}, res)
	})
	t.Logf("%d operations, %d histories could not be decided in time\n%v", calls, open, sum)
	if !t.Failed() && (calls < 50*seeds || open > max(1, seeds/20) || sum.outcomes["unknown"] < calls/100 || sum.passed < 5*seeds) {
		t.Errorf("test setup: %d operations in %d histories, %d of them open, %d unknown outcomes, %d leases whose hold was passed on to them",
			calls, seeds, open, sum.outcomes["unknown"], sum.passed)
	}
	facts := sum.facts(seeds)
	facts.Part = "histories"
	tally.Note(t, facts)

	for _, ruin := range ruins {
		if ruin.says != overlaps && ruin.says != tokensBack || ruin.extend != nil {
			continue // leases of this scene outlast the run without extensions
		}
		t.Run("found "+ruin.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(60) {
				_, verdict, _ := check(scene{seed: seed + 1, ruin: ruin.in})
				if verdict == porcupine.Illegal {
					t.Logf("with seed %d", seed+1)
					return
				}
			}
			t.Error("it was not found")
		})
	}
}
