// Package tally collects what the proof's tests did and saw, for its report.
package tally

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
)

// File is the environment variable that names the file to which Note appends.
const File = "LOCKKIT_TALLY"

// Facts is what one test did and saw. Everything but Part is optional; a test
// gives what it counts.
type Facts struct {
	// Part is the part of the proof: "simulation", "matrix", "processes",
	// "histories", "latency", "mutants", "limits", "adapters", "neighbours" or "soak".
	Part string
	// Test is the test's name; Note sets it.
	Test string
	// Runs is how many runs, trials or cells there were; Seeds names their seeds.
	Runs  int
	Seeds string `json:",omitempty"`
	// Faults counts the faults that really bit, Outcomes what the calls came to
	// ("granted", "busy", "unknown", "unavailable", "lost", ...), by kind.
	Faults, Outcomes map[string]int `json:",omitempty"`
	// Grants and ToOthers count grants, and those to another holder than before.
	Grants, ToOthers int `json:",omitempty"`
	// Violations counts what must not be, by kind: "overlaps", "stale writes",
	// "tokens back", "keys without TTL", "stuck waiters", "leaked goroutines",
	// "extensions after release". What was looked for and not seen is there as 0.
	Violations map[string]int `json:",omitempty"`
	// Expected counts the violations that a test of a limit expects.
	Expected map[string]int `json:",omitempty"`
	// Versions are those of the servers, by program.
	Versions map[string]string `json:",omitempty"`
}

// Asked is the environment variable by which `make proof` asks for the proof.
const Asked = "LOCKKIT_PROOF"

// Wanted tells whether the tests of the proof are to run: if LOCKKIT_PROOF is 1, or
// if some are named with -run. They take long, and what they show seldom depends on
// one changed line. It is for TestMain, which returns at once without it.
func Wanted() bool {
	flag.Parse()
	named := flag.Lookup("test.run")
	return os.Getenv(Asked) == "1" || named != nil && named.Value.String() != ""
}

// Trials is how many of n trials a test makes: all of them in a long run (LONG=1),
// a tenth of them but at least ten in the proof, and else a few, since the proof
// makes the others. With -short these are fewer.
func Trials(n int) int {
	switch {
	case os.Getenv("LONG") == "1":
		return n
	case os.Getenv(Asked) == "1":
		return max(10, n/10)
	case testing.Short():
		return max(3, n/200)
	}
	return max(3, n/50)
}

// AllTrials is n in the proof, also in a short one, and else a few.
func AllTrials(n int) int {
	if os.Getenv("LONG") == "1" || os.Getenv(Asked) == "1" {
		return n
	}
	return max(3, n/10)
}

// ProofOnly skips t if the proof is not asked for, nor t named with -run.
func ProofOnly(t testing.TB) {
	t.Helper()
	if !Wanted() {
		t.Skip("part of make proof")
	}
}

// Note appends f to the file that LOCKKIT_TALLY names, as one line of JSON; it
// does nothing without. It is safe for concurrent use, by several processes too.
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
