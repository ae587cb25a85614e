package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
)

// sample returns a run of two packages whose tests reported f.
func sample(f ...tally.Facts) *record {
	return &record{
		Start: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), CPUs: 2, Versions: map[string]string{"Go": "1.26"},
		Results: []result{{Part: "engine", Package: "core", Passed: 3}, {Part: "soak", Package: "core/proof/soak", Passed: 1}},
		facts:   f,
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	t.Run("sums by part", func(t *testing.T) {
		t.Parallel()
		r := sample(
			tally.Facts{Part: "histories", Test: "TestA", Runs: 1, Seeds: "7", Faults: map[string]int{"kill": 2}, Grants: 5, ToOthers: 3, Violations: map[string]int{"overlaps": 0}},
			tally.Facts{Part: "histories", Runs: 1, Faults: map[string]int{"kill": 1}, Grants: 6, Expected: map[string]int{"stale writes": 4}},
			tally.Facts{Part: "mutants", Runs: 2, Faults: map[string]int{"no-margin": 1, "no-polling": 1}},
		)
		text := r.report([]mutant{{"no-margin", "it has none", "22", "core: TestTrust"}})
		for _, want := range []string{
			"| histories | 2 | 3 | 11 | 3 | 0 | 4 |", "| kill | 3 |", "| overlaps | 0 |", "- TestA: 7", "| no-margin | it has none | 22 | core: TestTrust |",
			"4 tests and cases passed, 0 failed", "2026-01-02",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the report lacks %q:\n%s", want, text)
			}
		}
		if err := r.fault(); err != nil {
			t.Errorf("got %v, want no fault", err)
		}
	})
	t.Run("faults of a record", func(t *testing.T) {
		t.Parallel()
		for what, r := range map[string]*record{
			"overlaps":       sample(tally.Facts{Part: "soak", Violations: map[string]int{"overlaps": 1}}),
			"tests failed":   {Results: []result{{Package: "core", Passed: 1, Failed: 1}}},
			"no test passed": {Results: []result{{Package: "core", Skipped: 1}}},
			"exit status":    {Results: []result{{Package: "core", Passed: 1, Fault: "exit status 2"}}},
		} {
			if err := r.fault(); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("got %v, want %s", err, what)
			}
		}
	})
	t.Run("summary between the markers", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "README.md")
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("before\n" + readmeBegin + "\nstale text\n" + readmeEnd + "\nafter\n")
		if err := sample().intoReadme(file); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if s := string(text); !strings.HasPrefix(s, "before\n"+readmeBegin+"\n") || !strings.HasSuffix(s, readmeEnd+"\nafter\n") ||
			strings.Contains(s, "stale text") || !strings.Contains(s, "way to break a lock") {
			t.Errorf("README is now\n%s", s)
		}
		write("no markers")
		if err := sample().intoReadme(file); err == nil {
			t.Error("a README without markers is taken")
		}
	})
	t.Run("count of tests", func(t *testing.T) {
		t.Parallel()
		var res result
		var out strings.Builder
		res.read(strings.NewReader(`{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"it is wrong\n"}
{"Action":"fail","Test":"TestA"}
{"Action":"output","Test":"TestB","Output":"fine\n"}
{"Action":"pass","Test":"TestB"}
{"Action":"skip","Test":"TestC"}
{"Action":"fail"}
`), io.Writer(&out))
		if res.Passed != 1 || res.Failed != 1 || res.Skipped != 1 || out.String() != "it is wrong\n" {
			t.Errorf("got %+v and %q", res, out.String())
		}
	})
	t.Run("packages and names of parts", func(t *testing.T) {
		t.Parallel()
		seen := map[string]bool{}
		for _, p := range parts {
			names := []string{p.name}
			if !p.trials {
				names = append(names, p.packages...)
			}
			for _, name := range names {
				if seen[name] {
					t.Errorf("%s is there twice", name)
				}
				seen[name] = true
			}
			for _, pkg := range p.packages {
				if _, err := os.Stat(filepath.Join("../..", pkg)); err != nil {
					t.Error(err)
				}
			}
		}
		if _, err := pick("engine,nonsense"); err == nil {
			t.Error("a part that does not exist is picked")
		}
		long, _ := pick("all")
		short, _ := pick("")
		for _, p := range long {
			if p.trials {
				t.Errorf("%s is in a long run, which has its tests already", p.name)
			}
			if in := slices.ContainsFunc(short, func(q part) bool { return q.name == p.name }); in == p.own {
				t.Errorf("%s is in a short run: %v", p.name, in)
			}
		}
		if some, err := pick("engine"); err != nil || len(some) != 1 {
			t.Errorf("a part that is named gives %v and %v", some, err)
		}
	})
	t.Run("every store in part stores", func(t *testing.T) {
		t.Parallel()
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == "stores" })
		files, err := filepath.Glob("../*/*_test.go")
		if err != nil || i < 0 {
			t.Fatalf("part %d, %v", i, err)
		}
		found := map[string]bool{}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if pkg := "core/" + filepath.Base(filepath.Dir(file)); strings.Contains(string(text), "storetest"+".Run(") && !found[pkg] {
				found[pkg] = true
				if !slices.Contains(parts[i].packages, pkg) {
					t.Errorf("%s runs storetest, and core/proof/main.go has it in no part stores", pkg)
				}
			}
		}
		if len(found) < 6 {
			t.Errorf("%d packages run storetest, want 6 at least", len(found))
		}
	})
	t.Run("trials of the proof", func(t *testing.T) {
		t.Parallel()
		type pattern struct {
			text string
			err  error
		}
		of := make(map[string]pattern) // by package
		for _, p := range parts {
			for _, pkg := range p.packages {
				if _, ok := of[pkg]; !ok {
					text, err := trials(filepath.Join("../..", pkg))
					of[pkg] = pattern{text, err}
				}
				switch run, err := of[pkg].text, of[pkg].err; {
				case p.trials && (err != nil || !strings.HasPrefix(run, "^(Test")):
					t.Errorf("%s: %q, %v", pkg, run, err)
				case p.trials && !slices.ContainsFunc(parts, func(q part) bool { return q.own && slices.Contains(q.packages, pkg) }):
					t.Errorf("%s is in no part of PART=all", pkg)
				case p.own && err == nil && !slices.ContainsFunc(parts, func(q part) bool { return q.trials && slices.Contains(q.packages, pkg) }):
					t.Errorf("%s makes more trials for the proof, which does not run it", pkg)
				}
			}
		}
	})
}
