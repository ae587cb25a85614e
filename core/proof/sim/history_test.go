package sim_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// strictTTL outlasts a run, so that no hold of it expires.
const strictTTL = time.Hour

// strictly takes and gives back n times one of two keys, which nobody else uses.
func (w *worker) strictly(n int) {
	for range n {
		time.Sleep(lasting(w.r, time.Millisecond, 2*time.Second))
		ctx, cancel, _ := w.terms()
		opts := []core.AcquireOption{core.TTL(strictTTL)}
		if w.r.IntN(3) == 0 {
			opts = append(opts, core.Wait(0))
		}
		if lease, h := w.acquire(ctx, fmt.Sprint("strict:", w.r.IntN(2)), core.All, core.All, opts...); lease != nil {
			time.Sleep(lasting(w.r, time.Millisecond, time.Second))
			w.release(lease, h)
		}
		cancel()
	}
}

// lock is the state of a model lock: who holds it, the last token or a lower
// bound of it, and which leases may not be granted any more.
type lock struct {
	holder string
	last   uint64
	told   bool // last is the holder's token
	dead   string
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

// somebody is a holder of whom nobody has heard yet: a release grants the key to
// one of those who wait, for a moment.
const somebody = "?"

// free is what a lock can be when its holder has gone.
func (l lock) free() []lock {
	return []lock{{"", l.last, true, l.dead}, {somebody, l.last, true, l.dead}}
}

// after is what the lock can be after the call, nothing if the call's answer was
// impossible.
func (l lock) after(c call) []lock {
	same, none := []lock{l}, []lock(nil)
	mine, open := l.holder == c.lease, l.holder == "" || l.holder == somebody
	switch c.op + " " + c.outcome {
	case "acquire granted":
		switch {
		case open && !l.isDead(c.lease) && c.token > l.last,
			mine && l.told && c.token == l.last,
			mine && !l.told && c.token > l.last:
			return []lock{{c.lease, c.token, true, l.dead}}
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
			return []lock{l, {c.lease, l.last, false, l.dead}}
		}
	case "hand granted":
		if l.holder == c.giver && !l.isDead(c.lease) && c.token > l.last {
			return []lock{{c.lease, c.token, true, l.dead}}
		}
		return none
	case "hand busy":
		if l.holder != c.giver {
			return none
		}
		return l.free()
	case "hand lost":
		if l.holder == c.giver {
			return none
		}
	case "hand unknown":
		if l.holder == c.giver {
			return append(l.free(), l, lock{c.lease, l.last, false, l.dead})
		}
	case "release done":
		if mine || open {
			return l.free()
		} // else it had a place in line
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

// model is the lock for the checker. Each key is a lock of its own.
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

// operations is the history of the keys of strictly. What is unknown may still
// happen at any time.
func operations(history []call) []porcupine.Operation {
	var all []porcupine.Operation
	for i, c := range history {
		if !strings.HasPrefix(c.key, "strict:") || c.op == "extend" {
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

// What all clients were answered fits one lock for each key, whichever of the
// calls of unknown outcome took place.
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
			res.verdict.add(historyBad, "no lock answers like this: %+v", res.journal.history)
		}
		sum.add(t, scene{seed: seed}, res)
	})
	t.Logf("%d operations, %d histories could not be decided in time\n%v", calls, open, sum)
	if !t.Failed() && (calls < 50*seeds || open > max(1, seeds/20) || sum.outcomes["unknown"] < calls/100) {
		t.Errorf("vacuous: %d operations in %d histories, %d of them open, %d unknown outcomes", calls, seeds, open, sum.outcomes["unknown"])
	}
	facts := sum.facts(seeds)
	facts.Part = "histories"
	tally.Note(t, facts)

	for _, ruin := range ruins {
		if ruin.says != overlaps && ruin.says != tokensBack || ruin.extend != nil {
			continue // there are no extensions here
		}
		t.Run("told: "+ruin.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(60) {
				_, verdict, _ := check(scene{seed: seed + 1, ruin: ruin.in})
				if verdict == porcupine.Illegal {
					t.Logf("with seed %d", seed+1)
					return
				}
			}
			t.Error("it was not told")
		})
	}
}
