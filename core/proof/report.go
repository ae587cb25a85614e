package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
)

// total adds up the facts that the tests of a part reported. The part "" stands for all
// parts.
func (r *record) total(part string) (sum tally.Facts) {
	sum = tally.Facts{Faults: map[string]int{}, Outcomes: map[string]int{}, Violations: map[string]int{}, Expected: map[string]int{}}
	for _, f := range r.facts {
		if part != "" && f.Part != part {
			continue
		}
		sum.Runs += f.Runs
		sum.Grants += f.Grants
		sum.ToOthers += f.ToOthers
		if f.Part != "mutants" { // these faults are the mutants themselves
			add(sum.Faults, f.Faults)
		}
		add(sum.Outcomes, f.Outcomes)
		add(sum.Violations, f.Violations)
		add(sum.Expected, f.Expected)
	}
	return sum
}

func add(to, from map[string]int) {
	for k, n := range from {
		to[k] += n
	}
}

func count(m map[string]int) (n int) {
	for _, v := range m {
		n += v
	}
	return n
}

// fault returns the reason why the run is not a proof, or nil.
func (r *record) fault() error {
	var all []error
	for _, res := range r.Results {
		if res.Failed > 0 || res.Fault != "" {
			all = append(all, fmt.Errorf("%s: %d tests failed %s", res.Package, res.Failed, res.Fault))
		}
		if res.Passed == 0 {
			all = append(all, fmt.Errorf("%s: no test passed", res.Package))
		}
	}
	violations := r.total("").Violations
	for _, what := range slices.Sorted(maps.Keys(violations)) {
		if n := violations[what]; n > 0 {
			all = append(all, fmt.Errorf("%d %s", n, what))
		}
	}
	return errors.Join(all...)
}

// reported lists the names of the parts for which tests reported facts, the program's
// parts first.
func (r *record) reported() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	for _, f := range r.facts {
		if !slices.Contains(names, f.Part) {
			names = append(names, f.Part)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(r.facts, func(f tally.Facts) bool { return f.Part == name })
	})
}

func (r *record) report(mutants []mutant) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Proof report\n\nWritten by `make proof`; [PROOF.md](../PROOF.md) says what each hazard is and how to run and replay a test.\n\n%s\n", r.summary())
	r.conditions(&b)
	fmt.Fprintln(&b, "\n## What was done\n\nTests report what they count; others only pass or fail.\n\n| part | runs | faults that bit | grants | to another holder | violations | expected by limits |\n|---|---|---|---|---|---|---|")
	for _, name := range r.reported() {
		t := r.total(name)
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d |\n", name, t.Runs, count(t.Faults), t.Grants, t.ToOthers, count(t.Violations), count(t.Expected))
	}
	all := r.total("")
	table(&b, "Violations: none is allowed", "looked for", all.Violations)
	table(&b, "Violations that tests of limits expect", "where nothing is promised", all.Expected)
	table(&b, "Faults that bit", "fault", all.Faults)
	table(&b, "Outcomes", "what calls came to", all.Outcomes)
	r.packages(&b)
	if len(mutants) > 0 {
		fmt.Fprintf(&b, "\n## %d ways to break a lock, each caught by this test\n\n| mistake | what it breaks | hazard | caught by |\n|---|---|---|---|\n", len(mutants))
		for _, m := range mutants {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.name, m.breaks, m.hazard, m.test)
		}
	}
	r.seeds(&b)
	return b.String()
}

func (r *record) summary() string {
	passed, failed, skipped := 0, 0, 0
	for _, res := range r.Results {
		passed, failed, skipped = passed+res.Passed, failed+res.Failed, skipped+res.Skipped
	}
	t := r.total("")
	return fmt.Sprintf("%d tests and cases passed, %d failed, %d skipped. %d faults bit in %d runs; %d grants, %d of them to another holder than before; %d violations.",
		passed, failed, skipped, count(t.Faults), t.Runs, t.Grants, t.ToOthers, count(t.Violations))
}

// conditions writes the conditions of the run, without a name of the machine.
func (r *record) conditions(b *strings.Builder) {
	counts, race := "a tenth of the full counts", "without the race detector"
	if r.Long {
		counts = "full counts (LONG=1)"
	}
	switch {
	case r.Race && r.Long:
		race = "with the race detector except for the simulation"
	case r.Race:
		race = "with the race detector"
	}
	var v []string
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		v = append(v, name+" "+r.Versions[name])
	}
	fmt.Fprintf(b, "\n%s, %s, %d cores, %s, %s. %s.\n", r.Start.Format(time.DateOnly), r.Took.Round(time.Minute), r.CPUs, counts, race, strings.Join(v, ", "))
}

func table(b *strings.Builder, title, head string, m map[string]int) {
	if len(m) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n| %s | times |\n|---|---|\n", title, head)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(b, "| %s | %d |\n", k, m[k])
	}
}

func (r *record) packages(b *strings.Builder) {
	fmt.Fprintln(b, "\n## Tests\n\n| part | package | passed | failed | skipped | seconds |\n|---|---|---|---|---|---|")
	for _, res := range r.Results {
		fmt.Fprintf(b, "| %s | %s | %d | %d | %d | %.0f |\n", res.Part, res.Package, res.Passed, res.Failed, res.Skipped, res.Took.Seconds())
	}
}

// mostSeeds is the maximum number of bytes that the report shows of the seeds of one
// test.
const mostSeeds = 400

func (r *record) seeds(b *strings.Builder) {
	head := "\n## Seeds\n\n"
	for _, f := range r.facts {
		if f.Seeds != "" {
			s := f.Seeds
			if len(s) > mostSeeds {
				s = s[:mostSeeds] + " …"
			}
			fmt.Fprintf(b, "%s- %s: %s\n", head, f.Test, s)
			head = ""
		}
	}
}

// The generated part of README is between these lines.
const (
	readmeBegin = "<!-- proof: generated by make proof -->"
	readmeEnd   = "<!-- /proof -->"
)

// intoReadme writes the summary between the markers of the file at path.
func (r *record) intoReadme(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(readmeBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(readmeEnd))
	if !ok || !ok2 {
		return fmt.Errorf("%s has no line %s, or none %s after it", path, readmeBegin, readmeEnd)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nThe last run, on %s", readmeBegin, r.Start.Format(time.DateOnly))
	if r.Long {
		b.WriteString(" with the full counts")
	}
	fmt.Fprintf(&b, ": %s Each [way to break a lock](REPORT.md) is caught by a test.\n%s", r.summary(), readmeEnd)
	return os.WriteFile(path, slices.Concat(before, []byte(b.String()), after), 0o644)
}
