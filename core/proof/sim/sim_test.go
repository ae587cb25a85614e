package sim_test

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// TestSimulation runs random work of many programs under random faults. It checks that
// no two holds that exclude each other overlap, and that tokens grow. A register that
// compares tokens must accept no stale write. Each key must have an expiry, and a run
// that was answered must not run again. After the last fault every program must
// continue, and at the end nothing but stored answers may be left on the server.
//
// The test covers hazards 7, 8, 9, 10, 11, 12, 13, 14, 16, 25, 34, 39, 43, 45, 51 and 58.
func TestSimulation(t *testing.T) {
	t.Parallel()
	seeds := count(2000, 200_000)
	sum := newSummary()
	if *seedFlag > 0 {
		sum.add(t, scene{seed: *seedFlag}, run(t, scene{seed: *seedFlag}))
		t.Log(sum)
		return
	}
	eachSeed(t, seeds, func(t *testing.T, seed uint64) {
		s := scene{seed: seed}
		sum.add(t, s, run(t, s))
	})
	t.Log(sum)
	sum.enough(t, seeds)
	tally.Note(t, sum.facts(seeds))
}

// eachSeed plays the seeds from 1 to n, as many at a time as there are processors. It
// stops after the first failures.
func eachSeed(t *testing.T, n int, play func(t *testing.T, seed uint64)) {
	var next atomic.Uint64
	t.Run("all seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("player ", i+1), func(t *testing.T) {
				t.Parallel()
				for !t.Failed() {
					seed := next.Add(1)
					if seed > uint64(n) {
						return
					}
					play(t, seed)
				}
			})
		}
	})
}

type summary struct {
	mu         sync.Mutex
	runs       int
	grants     int
	toOthers   int // grants to another client than before
	nested     int
	replays    int
	refused    int
	passed     int // leases whose hold was passed on to them
	lost       int // leases that shared a grant with others, and whose Release returned ErrLost
	wiped      int // leases counted in lost whose grant was lost by a wipe of the server
	outcomes   map[string]int
	bit        map[string]int
	violations map[string]int
}

func newSummary() *summary {
	s := &summary{outcomes: make(map[string]int), bit: make(map[string]int), violations: make(map[string]int)}
	for _, k := range kinds {
		s.violations[k] = 0
	}
	return s
}

// add counts the events of a run, and fails the test for each violation.
func (s *summary) add(t *testing.T, sc scene, res result) {
	t.Helper()
	for kind, all := range res.verdict {
		for _, what := range all[:min(len(all), 5)] {
			t.Errorf("seed %d: %s: %s", sc.seed, kind, what)
		}
		t.Logf("to play it again: go test ./core/proof/sim -run '%s' -seed %d -count 20", rootOf(t), sc.seed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	s.refused += res.refused
	for kind, all := range res.verdict {
		s.violations[kind] += len(all)
	}
	for f, n := range res.bit {
		if n > 0 {
			s.bit[fault(f).String()] += n
		}
	}
	for outcome, n := range res.journal.calls {
		s.outcomes[outcome] += n
	}
	last := make(map[string]int)
	holds := res.journal.holds
	slices.SortStableFunc(holds, func(a, b *hold) int { return cmp.Compare(a.from, b.from) })
	for _, h := range holds {
		if h.outer != nil {
			s.nested++
			continue
		}
		if h.passed {
			s.passed++
		}
		if g := h.grant; g != nil && g.leases > 1 && errors.Is(h.result, core.ErrLost) {
			s.lost++
			if slices.ContainsFunc(res.journal.wipes, func(w time.Duration) bool { return g.got < w && w < h.let }) {
				s.wiped++
			}
		}
		s.grants++
		if before, known := last[h.key]; known && before != h.client {
			s.toOthers++
		}
		last[h.key] = h.client
	}
	done := make(map[string]bool)
	for _, a := range res.journal.answers {
		if a.ok && done[a.key] {
			s.replays++
		}
		done[a.key] = done[a.key] || a.ok
	}
}

// enough fails the test if too few events happened for the test to be meaningful.
func (s *summary) enough(t *testing.T, seeds int) {
	t.Helper()
	if t.Failed() {
		return
	}
	least := func(what string, n, want int) {
		if n < want {
			t.Errorf("test setup: %s: %d, want at least %d", what, n, want)
		}
	}
	calls := 0
	for _, n := range s.outcomes {
		calls += n
	}
	least("runs", s.runs, seeds)
	least("unknown outcomes", s.outcomes["unknown"], calls/100)
	least("grants", s.grants, 10*seeds)
	least("grants to another client than the one before", s.toOthers, 5*seeds)
	least("re-entries", s.nested, seeds/5)
	least("leases whose hold was passed on to them", s.passed, seeds)
	least("leases of a hold of several whose release reported its loss", s.wiped, seeds/50)
	least("answers that were replayed", s.replays, seeds/5)
	least("stale writes that a register refused", s.refused, seeds/20)
	for f := dropRequest; f < faults; f++ {
		least(f.String(), s.bit[f.String()], seeds/10)
	}
}

func (s *summary) facts(seeds int) tally.Facts {
	return tally.Facts{
		Part: "simulation", Runs: s.runs, Seeds: fmt.Sprint("1 to ", seeds), Faults: s.bit, Outcomes: s.outcomes,
		Grants: s.grants, ToOthers: s.toOthers, Violations: s.violations,
	}
}

func (s *summary) String() string {
	return fmt.Sprintf("%d runs, %d grants (%d to another client than the one before, %d whose hold was passed on to them), %d re-entries, %d replays, "+
		"%d stale writes refused, %d holds of several leases lost (%d of them with the server's memory)\nanswers of the stores: %v\nfaults: %v",
		s.runs, s.grants, s.toOthers, s.passed, s.nested, s.replays, s.refused, s.lost, s.wiped, s.outcomes, s.bit)
}

// rootOf returns the name of the test function.
func rootOf(t *testing.T) string {
	name := t.Name()
	for i, c := range name {
		if c == '/' {
			return name[:i]
		}
	}
	return name
}
