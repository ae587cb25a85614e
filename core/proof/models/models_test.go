package models_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
)

// page returns README.md, which has the number of states of each model, and each mutant.
func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// maxLines, maxMemory and maxTime limit all models together: the lines of their files,
// and the megabytes and the processor time of their searches.
const maxLines, maxMemory, maxTime = 500, 8192, 180 * time.Second

// TestModels searches all states of each model. The numbers of states must be the numbers
// in README.md, and all searches together must need at most maxMemory and maxTime.
//
// The time is the processor time of the search processes. It does not count the time in
// which a process waits for a core, so a busy machine does not decide the test. Programs
// on the same core or cache can still make it a few times longer. On a free core the
// searches need less than a tenth of maxTime.
func TestModels(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var searches int
	var all result
	t.Cleanup(func() {
		if searches < len(models) {
			return // -run has selected some
		}
		t.Logf("the searches took %.0f s of processor time and %.0f MB together", all.used.Seconds(), all.memory)
		if all.memory > maxMemory {
			t.Errorf("got %.0f MB for all searches, want at most %d", all.memory, maxMemory)
		}
		if all.used > maxTime {
			t.Errorf("got %v of processor time for all searches, want at most %v", all.used, maxTime)
		}
	})
	for _, name := range models {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := open(t, name, "", "")
			r := m.search(t, "-O1")
			if r.broken {
				events, promise := m.trail(t)
				t.Fatalf("got %s broken, want no broken promise:\n%s", promise, strings.Join(events, "\n"))
			}
			t.Logf("%s states, %.0f s of processor time, %.0f MB", r.states, r.used.Seconds(), r.memory)
			mu.Lock()
			searches++
			all.used += r.used
			all.memory += r.memory
			mu.Unlock()
			if row := fmt.Sprintf("| `%s.pml` | %s |", name, r.states); !strings.Contains(page(t), row) {
				t.Errorf("README.md lacks %q (Spin 6.5.2 counts so)", row)
			}
			tally.Note(t, tally.Facts{Part: "models", Runs: 1, Violations: map[string]int{"broken promises": 0}})
		})
	}
}

// TestModels_Short checks that all models together have at most maxLines lines.
func TestModels_Short(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.pml")
	if err != nil || len(files) != len(models)+2 {
		t.Fatalf("got the files %q (%v), want key.pml, run.pml and %d models", files, err, len(models))
	}
	lines := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(text), "\n")
	}
	if lines > maxLines {
		t.Errorf("got %d lines in %q, want at most %d", lines, files, maxLines)
	}
}

// TestMutants puts small mistakes into each model. The search must find the promise that
// each mistake breaks. If the mistake changes the answers of the store (atStore), the
// answers of a real store must differ. Otherwise the answers must be the same.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, mu := range mutants {
		t.Run(mu.name, func(t *testing.T) {
			t.Parallel()
			m := open(t, mu.model, mu.from, mu.to)
			if !m.search(t, "-O0").broken {
				t.Fatalf("got no broken promise, want %s", mu.promise)
			}
			events, promise := m.trail(t)
			if promise != mu.promise {
				t.Errorf("got %s broken, want %s:\n%s", promise, mu.promise, strings.Join(events, "\n"))
			}
			if row := fmt.Sprintf("| `%s.pml` | %s | %s |", mu.model, mu.name, mu.promise); !strings.Contains(page(t), row) {
				t.Errorf("README.md lacks %q", row)
			}
			err := play(t, mu.model, events, map[string]int{})
			if differs := err != nil; differs != mu.atStore {
				t.Errorf("got %v from the store, want a difference: %v\n%s", err, mu.atStore, strings.Join(events, "\n"))
			}
			tally.Note(t, tally.Facts{Part: "models", Runs: 1, Faults: map[string]int{"mutant of a model": 1}})
		})
	}
}

// TestReplay replays random runs of the models at a store. In these runs the clock ticks
// rarely. For each rare step, TestReplay also replays a run that a search has found.
func TestReplay(t *testing.T) {
	t.Parallel()
	const seeds, ticks = 100, "active proctype clock() {\n\tdo\n"
	count := map[string]int{}
	for _, name := range models {
		m := open(t, name, ticks, ticks+strings.Repeat("\t:: true\n", 20))
		for seed := range seeds {
			out, _ := m.run(t, "spin", "-T", "-B", fmt.Sprint("-n", seed+1), "-u3000", name+".pml")
			if strings.Contains(out, "broken") || strings.Contains(out, "Error") {
				t.Fatalf("%s, seed %d: the model is wrong:\n%s", name, seed+1, out)
			}
			if err := play(t, name, eventsOf(out), count); err != nil {
				t.Errorf("%s, seed %d: %v", name, seed+1, err)
			}
		}
	}
	for _, step := range rare {
		m := open(t, "commit", step, step+"; assert(false)")
		if !m.search(t, "-O0").broken {
			t.Fatalf("got no run with the step %s", step)
		}
		events, _ := m.trail(t)
		if err := play(t, "commit", events, count); err != nil {
			t.Errorf("%s: %v", step, err)
		}
	}
	for _, kind := range []string{
		"acquire GRANTED", "acquire BUSY", "acquire LOST", "extend OK", "extend LOST", "release OK", "release LOST", "revoke OK", "begin DONE", "save OK",
		"save SAVED", "commit OK", "commit LOST", "commit SAVED", "end COMMITTED", "end ROLLEDBACK",
	} {
		if count[kind] == 0 {
			t.Errorf("test setup: got no %q in %v", kind, count)
		}
	}
	tally.Note(t, tally.Facts{Part: "models", Runs: seeds*len(models) + len(rare), Outcomes: count})
}

// play replays events at a new store, and returns the first difference.
func play(t *testing.T, model string, events []string, count map[string]int) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newReplay(t, model, count)
		for i, event := range events {
			if err = r.do(t.Context(), event); err != nil {
				err = fmt.Errorf("event %d: %w", i+1, err)
				return
			}
		}
	})
	return err
}
