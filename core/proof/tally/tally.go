// Package tally collects the counts of the proof's tests for its report.
package tally

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
)

// File is the environment variable that names the file to which Note appends.
const File = "LOCKKIT_TALLY"

// Facts are the counts of one test. Every field except Part is optional. A test sets the
// fields that it counts.
type Facts struct {
	// Part is the part of the proof: "simulation", "models", "matrix", "processes",
	// "histories", "latency", "mutants", "limits", "adapters", "neighbours" or "soak".
	Part string
	// Test is the test's name. Note sets it.
	Test string
	// Runs is the number of runs, trials or cells. Seeds names their seeds.
	Runs  int
	Seeds string `json:",omitempty"`
	// Faults counts the faults that took effect, and Outcomes the outcomes of calls
	// ("granted", "busy", "unknown", "unavailable", "lost", ...), both by kind.
	Faults, Outcomes map[string]int `json:",omitempty"`
	// Grants counts the grants, and ToOthers counts the grants to another holder than
	// before.
	Grants, ToOthers int `json:",omitempty"`
	// Violations counts the violations by kind, for example "overlaps", "stale writes",
	// "tokens back", "keys without TTL" or "stuck waiters". A kind that was checked and
	// not found has the count 0.
	Violations map[string]int `json:",omitempty"`
	// Expected counts the violations that a test of a limit expects.
	Expected map[string]int `json:",omitempty"`
	// Versions contains the versions of the servers, by program.
	Versions map[string]string `json:",omitempty"`
}

// Asked is the environment variable with which `make proof` requests the proof.
const Asked = "LOCKKIT_PROOF"

// Wanted reports whether to run the proof's tests. It returns true if LOCKKIT_PROOF is
// 1, or if -run names tests. The proof's tests take long, and few changes affect their
// results. Wanted is for TestMain, which returns at once if the proof is not wanted.
func Wanted() bool {
	if !flag.Parsed() {
		flag.Parse()
	}
	named := flag.Lookup("test.run")
	return os.Getenv(Asked) == "1" || named != nil && named.Value.String() != ""
}

// Trials returns how many of n trials a test makes. In a long run (LONG=1) a test makes
// all n trials. In the proof it makes a tenth of n, but at least ten. Otherwise it makes
// a few, and even fewer with -short.
func Trials(n int) int {
	switch {
	case os.Getenv("LONG") == "1":
		return n
	case os.Getenv(Asked) == "1":
		return max(10, n/10)
	case testing.Short():
		return max(3, n/200)
	}
	return max(3, n/100)
}

// AllTrials returns n in the proof and in a long run. Otherwise it returns a tenth of n,
// but at least three.
func AllTrials(n int) int {
	if os.Getenv("LONG") == "1" || os.Getenv(Asked) == "1" {
		return n
	}
	return max(3, n/10)
}

// ProofOnly skips t, unless the proof is requested or -run names tests.
func ProofOnly(t testing.TB) {
	t.Helper()
	if !Wanted() {
		t.Skip("part of make proof")
	}
}

// ProofOrMatrix skips t like ProofOnly, except on the servers of `make matrix`.
func ProofOrMatrix(t testing.TB) {
	t.Helper()
	if os.Getenv("LOCKKIT_SERVERS") == "" {
		ProofOnly(t)
	}
}

// Note appends f to the file that LOCKKIT_TALLY names, as one line of JSON. Without
// LOCKKIT_TALLY it does nothing. Note is safe for concurrent use, also by several
// processes.
func Note(t testing.TB, f Facts) {
	t.Helper()
	f.Test = t.Name()
	name := os.Getenv(File)
	if name == "" {
		return
	}
	line, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}
