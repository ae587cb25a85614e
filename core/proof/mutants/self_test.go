package mutants_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheRunItself(t *testing.T) {
	t.Parallel()
	t.Run("a mutant is noticed only by an assertion of its own test", func(t *testing.T) {
		t.Parallel()
		for output, want := range map[string]string{
			"--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/a_case (0.01s)\n":                    "",
			"--- PASS: TestA (0.01s)\n    --- PASS: TestA/a_case (0.01s)\n":                    "nobody notices",
			"--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/a_case_more (0.01s)\n":               "did not run",
			"--- FAIL: TestA (0.01s)\n    --- PASS: TestA/a_case (0.01s)\n":                    "nobody notices",
			"    --- SKIP: TestA/a_case (0.01s)\n":                                             "did not run",
			"testing: warning: no tests to run\nPASS\n":                                        "did not run",
			"--- FAIL: TestA (2m0s)\n    --- FAIL: TestA/a_case (2m0s)\npanic: test timed out": "did not come to its end",
		} {
			err := caught(output, "TestA/a case")
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%q: got %v, want %q", output, err, want)
			}
		}
	})
	t.Run("a mutant is stale unless its text stands there once", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("one two two"), 0o600); err != nil {
			t.Fatal(err)
		}
		const head = "breaks: it\nhazard: 1\ntest: core: TestA/b c\n"
		for from, fits := range map[string]bool{"one": true, "two": false, "three": false} {
			m, err := parse("m", head+"\n--- a.go\n"+from+"\n+++\nfour\n")
			if err != nil {
				t.Fatal(err)
			}
			changed, err := m.apply(dir)
			if fits && changed["a.go"] != "four two two" || !fits && (err == nil || !strings.Contains(err.Error(), "stale")) {
				t.Errorf("%s: got %q, %v", from, changed, err)
			}
		}
	})
	t.Run("a file that does not say everything is refused", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{
			"", "breaks: it\nhazard: 1\n\n--- a.go\nx\n+++\ny\n", "breaks: it\nhazard: 1\ntest: core: TestA\n",
			"breaks: it\nhazard: 1\ntest: core: TestA\n\n--- a.go\nx\n", "breaks: it\nhazard: 1\ntest: core: TestA\n\n--- a.go\nx\n+++\nx\n",
		} {
			if m, err := parse("m", text); err == nil {
				t.Errorf("%q is read as %+v", text, m)
			}
		}
	})
}
