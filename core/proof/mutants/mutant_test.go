package mutants_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// mutant is one small change to the kit's own code, with the test that must fail because
// of it. The mutant's file begins with a few lines of description, followed by the
// replacements:
//
//	breaks: a description of the mistake
//	hazard: the number in core/PROOF.md
//	test: package: TestName/its case
//
//	--- package: function, or Type.method, or what else is declared there
//	text that stands there exactly once
//	+++
//	text to put in its place
//
// A file can have several replacements. For code that is not Go, such as Lua and SQL,
// "---" is followed by the name of the file.
type mutant struct {
	Name, Breaks, Hazard string
	Package, Test        string
	edits                []edit
}

type edit struct{ place, from, to string }

var header = regexp.MustCompile(`^breaks: (.+)\nhazard: (\d+)\ntest: ([\w/]+): (Test.+)\n$`)

// parse parses the file of a mutant.
func parse(name, text string) (*mutant, error) {
	parts := strings.Split(text, "\n--- ")
	head := header.FindStringSubmatch(parts[0])
	if head == nil {
		return nil, fmt.Errorf("%s: it has to begin with lines breaks, hazard and test", name)
	}
	m := &mutant{Name: name, Breaks: head[1], Hazard: head[2], Package: head[3], Test: head[4]}
	for _, part := range parts[1:] {
		where, rest, _ := strings.Cut(part, "\n")
		from, to, ok := strings.Cut(rest, "\n+++\n")
		from, to = strings.TrimRight(from, "\n"), strings.TrimRight(to, "\n")
		if !ok || from == "" || from == to {
			return nil, fmt.Errorf("%s: what to replace in %s is not said", name, where)
		}
		m.edits = append(m.edits, edit{where, from, to})
	}
	if len(m.edits) == 0 {
		return nil, fmt.Errorf("%s: it changes nothing", name)
	}
	return m, nil
}

// load loads all mutants of a directory.
func load(dir string) ([]*mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.mutant"))
	if err != nil {
		return nil, err
	}
	var all []*mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(filepath.Base(file), ".mutant"), string(text))
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// apply returns the files of the module at root that the mutant changes, with their new
// texts. It fails if the mutant is stale, which means that its text does not occur
// exactly once in the named place.
func (m *mutant) apply(root string) (map[string]string, error) {
	changed := make(map[string]string)
	for _, e := range m.edits {
		file, text, from, to, err := find(root, e.place, changed)
		if err != nil {
			return nil, fmt.Errorf("stale: %s: look for what became of %s: %w", m.Breaks, e.place, err)
		}
		part := text[from:to]
		if n := strings.Count(part, e.from); n != 1 {
			return nil, fmt.Errorf("stale: %s: look at %s in %s: it has the text %d times, it has to be there once:\n%s",
				m.Breaks, e.place, file, n, e.from)
		}
		changed[file] = text[:from] + strings.Replace(part, e.from, e.to, 1) + text[to:]
	}
	return changed, nil
}

// overlay writes the changed files of the module at root, and the file for go build
// -overlay, into dir. It returns the name of the file for go build.
func overlay(root, dir string, changed map[string]string) (string, error) {
	replace := make(map[string]string)
	for file, text := range changed {
		to := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = to
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o600)
}

// pattern returns the argument of -run for the tests of these mutants.
func pattern(mutants ...*mutant) string {
	var all []string
	for _, m := range mutants {
		var parts []string
		for part := range strings.SplitSeq(m.Test, "/") {
			parts = append(parts, "^"+regexp.QuoteMeta(spelt(part))+"$")
		}
		if one := strings.Join(parts, "/"); !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return strings.Join(all, "|")
}

// spelt returns the name of a test as go test writes it.
func spelt(name string) string { return strings.ReplaceAll(name, " ", "_") }

// ending returns the result of a test from the output of go test -v: PASS, FAIL, SKIP,
// or "" if it is absent.
func ending(output, test string) string {
	m := regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): ` + regexp.QuoteMeta(spelt(test)) + ` \(`).FindStringSubmatch(output)
	if m == nil {
		return ""
	}
	return m[1]
}

// caught returns nil if the output of a mutant's test shows that one of the test's
// assertions failed. Otherwise it returns the reason why the mutant was not caught.
func caught(output, test string) error {
	switch {
	case regexp.MustCompile(`(?m)^(panic|fatal error): `).MatchString(output):
		return errors.New("the test did not come to its end")
	case ending(output, test) == "PASS":
		return errors.New("nobody notices")
	case ending(output, test) != "FAIL":
		return errors.New("the test did not run")
	}
	return nil
}
