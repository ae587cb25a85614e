package core_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestProof compares PROOF.md with the tests. Each test that the document names must
// exist in the named package. If tests of a package cite a hazard, the hazard's row
// must name the package.
func TestProof(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("PROOF.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, cited := readTests()
	rows := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|.*\| ([^|]*) \|$`).FindAllStringSubmatch(string(document), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("PROOF.md has two rows %s", m[1])
		}
		rows[m[1]] = m[2]
	}
	for number, shown := range rows {
		for part := range strings.SplitSeq(shown, "; ") {
			pkg, names, ok := strings.Cut(part, ": ")
			if !ok {
				t.Errorf("PROOF.md row %s: %q is not a package with its tests", number, part)
			}
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(names, -1) {
				if !slices.Contains(tests[pkg], name[1]) {
					t.Errorf("PROOF.md row %s: %s has no %s", number, pkg, name[1])
				}
			}
		}
	}
	for number, packages := range cited {
		for _, pkg := range packages {
			if !strings.Contains("; "+rows[number], "; "+pkg+": ") {
				t.Errorf("tests of %s cite hazard %s, but its row in PROOF.md does not name them", pkg, number)
			}
		}
	}
}

var (
	hazardNumbers = regexp.MustCompile(`hazards? (\d+(?:(?:, | and )\d+)*)`)
	digits        = regexp.MustCompile(`\d+`)
)

// readTests returns the tests of each package, and the packages whose tests cite each
// hazard.
var readTests = sync.OnceValues(func() (tests, cited map[string][]string) {
	tests, cited = make(map[string][]string), make(map[string][]string)
	for depth := range 4 {
		files, _ := filepath.Glob("../" + strings.Repeat("*/", depth+1) + "*_test.go")
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				panic(err)
			}
			pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../")
			for line := range bytes.Lines(source) {
				if rest, ok := bytes.CutPrefix(line, []byte("func Test")); ok {
					name, _, _ := bytes.Cut(rest, []byte("("))
					tests[pkg] = append(tests[pkg], "Test"+string(name))
				}
				if !bytes.Contains(line, []byte("hazard")) {
					continue
				}
				for _, m := range hazardNumbers.FindAllSubmatch(line, -1) {
					for _, number := range digits.FindAllString(string(m[1]), -1) {
						if !slices.Contains(cited[number], pkg) {
							cited[number] = append(cited[number], pkg)
						}
					}
				}
			}
		}
	}
	return tests, cited
})
