package adapters_test

import (
	"maps"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/proof/tally"
)

const passedOn = "passed on"

// book adds up the facts of all trials.
type book struct {
	mu    sync.Mutex
	facts tally.Facts
}

// newBook returns a book. After all trials, the test fails if a goroutine is left, or if
// too few events happened. Then the facts are reported to package tally.
func newBook(t *testing.T) *book {
	b := &book{facts: tally.Facts{
		Part:   "adapters",
		Faults: map[string]int{}, Outcomes: map[string]int{}, Expected: map[string]int{},
		Violations: map[string]int{
			"overlaps": 0, "stale writes": 0, "tokens back": 0, "keys without TTL": 0, "keys left": 0,
			"secrets shown": 0, "leaked goroutines": 0, "wrong answers": 0, "wrong effects": 0,
		},
	}}
	mine := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if err := goleak.Find(mine); err != nil {
			b.facts.Violations["leaked goroutines"]++
			t.Error(err)
		}
		least := 0
		for _, n := range b.facts.Faults {
			least += n
		}
		if !t.Failed() && least < b.facts.Runs {
			t.Errorf("test setup: %d events in %d trials", least, b.facts.Runs)
		}
		if !t.Failed() && b.facts.Faults["rush"] > 0 && b.facts.Outcomes[passedOn] < b.facts.Faults["rush"]/4 {
			t.Errorf("test setup: %d holds were passed on in %d rushes", b.facts.Outcomes[passedOn], b.facts.Faults["rush"])
		}
		t.Logf("%d trials, events %v, outcomes %v, violations %v, expected %v",
			b.facts.Runs, b.facts.Faults, b.facts.Outcomes, b.facts.Violations, b.facts.Expected)
		tally.Note(t, b.facts)
	})
	return b
}

func (b *book) trial(event string, happened bool, outcomes, violations, expected map[string]int, grants int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.facts.Runs++
	b.facts.Grants += grants
	if happened {
		b.facts.Faults[event]++
	}
	for to, from := range map[*map[string]int]map[string]int{
		&b.facts.Outcomes: outcomes, &b.facts.Violations: violations, &b.facts.Expected: expected,
	} {
		for kind, n := range maps.All(from) {
			(*to)[kind] += n
		}
	}
}
