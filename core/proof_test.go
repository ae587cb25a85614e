package core_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
	tests, cited := readTests(t)
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

// readTests returns the tests of each package, and for each hazard the packages whose
// tests cite it.
func readTests(t *testing.T) (tests, cited map[string][]string) {
	t.Helper()
	tests, cited = make(map[string][]string), make(map[string][]string)
	files, err := filepath.Glob("../*/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, deeper := range []string{"../*/*/*_test.go", "../*/*/*/*_test.go", "../*/*/*/*/*_test.go"} {
		more, err := filepath.Glob(deeper)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pkg := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../")
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
			tests[pkg] = append(tests[pkg], string(m[1]))
		}
		for _, m := range regexp.MustCompile(`hazards? (\d+(?:(?:, | and )\d+)*)`).FindAllSubmatch(source, -1) {
			for _, number := range regexp.MustCompile(`\d+`).FindAllString(string(m[1]), -1) {
				if !slices.Contains(cited[number], pkg) {
					cited[number] = append(cited[number], pkg)
				}
			}
		}
	}
	return tests, cited
}
