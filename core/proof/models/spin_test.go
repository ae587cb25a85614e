package models_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// limit is the time limit of one program. A search takes ten seconds on a free core.
const limit = 10 * time.Minute

// models are the names of the models' files, without .pml.
var models = []string{"store", "passing", "once", "commit"}

// partsOf returns the names of the files of a model, without .pml.
func partsOf(model string) []string {
	if model == "once" || model == "commit" {
		return []string{"key", "run", model}
	}
	return []string{"key", model}
}

// model is a copy of the models in a separate directory, because Spin writes files
// beside them.
type model struct{ dir, name string }

// open copies the files of the model name.pml, and replaces the text from by the text to
// in one of them.
func open(t *testing.T, name, from, to string) model {
	t.Helper()
	testserver.RequireSpin(t)
	m, changed := model{t.TempDir(), name}, 0
	for _, file := range partsOf(name) {
		text, err := os.ReadFile(file + ".pml")
		if err != nil {
			t.Fatal(err)
		}
		source := string(text)
		if from != "" {
			changed += strings.Count(source, from)
			source = strings.Replace(source, from, to, 1)
		}
		if err := os.WriteFile(filepath.Join(m.dir, file+".pml"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if from != "" && changed != 1 {
		t.Fatalf("stale: the model has the text %d times, want once:\n%s", changed, from)
	}
	return m
}

// run runs a program in the directory of m. It returns the program's output and its
// processor time.
func (m model) run(t *testing.T, program string, args ...string) (string, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = m.dir
	out, err := cmd.CombinedOutput()
	// Spin's exit code is the number of errors that it has found.
	if _, exited := err.(*exec.ExitError); err != nil && (!exited || ctx.Err() != nil || program == "gcc") {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
	return string(out), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

var (
	errorsFound = regexp.MustCompile(`errors: (\d+)`)
	statesFound = regexp.MustCompile(`(\d+) states, stored`)
	memoryUsed  = regexp.MustCompile(`([\d.]+)\s+total actual memory usage`)
)

type result struct {
	states string
	broken bool
	memory float64       // in megabytes
	used   time.Duration // processor time
}

// search searches all states, unless it finds a broken promise before. level is the
// compiler's optimization level for the search.
func (m model) search(t *testing.T, level string) result {
	t.Helper()
	m.run(t, "spin", "-a", m.name+".pml")
	m.run(t, "gcc", "-w", level, "-DSAFETY", "-DMEMLIM=4000", "-o", "pan", "pan.c")
	out, used := m.run(t, filepath.Join(m.dir, "pan"), "-m100000", "-w22")
	found, stored, memory := errorsFound.FindStringSubmatch(out), statesFound.FindStringSubmatch(out), memoryUsed.FindStringSubmatch(out)
	if found == nil || stored == nil || memory == nil || strings.Contains(out, "max search depth") || found[1] == "0" && strings.Contains(out, "not completed") {
		t.Fatalf("the search did not come to its end:\n%s", out)
	}
	r := result{states: stored[1], broken: found[1] != "0", used: used}
	r.memory, _ = strconv.ParseFloat(memory[1], 64)
	return r
}

// trail returns the model's events before the broken promise, and the promise. Spin also
// prints the promises that are broken later in the same step.
func (m model) trail(t *testing.T) (events []string, promise string) {
	t.Helper()
	out, _ := m.run(t, "spin", "-t", "-T", m.name+".pml")
	for line := range strings.Lines(out) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "broken "); ok && promise == "" {
			promise = p
		}
	}
	return eventsOf(out), promise
}

// eventsOf returns the events in out, which the replay applies to a store.
func eventsOf(out string) (events []string) {
	for line := range strings.Lines(out) {
		if e, ok := strings.CutPrefix(strings.TrimSpace(line), "do "); ok {
			events = append(events, e)
		}
	}
	return events
}
