package core_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestStatedLimits checks that doc.go and PROOF.md state the same limits, and that the
// tests of these limits in PROOF.md exist.
func TestStatedLimits(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("PROOF.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(document), "\n## Limits\n")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([A-Z].*\.) \| ([^|]+) \|$`).FindAllStringSubmatch(table, -1)
	if !ok || len(rows) < 8 {
		t.Fatalf("PROOF.md has %d limits, want 8 at least", len(rows))
	}
	tests, _ := readTests()
	expected := make(map[string]bool)
	for _, row := range rows {
		expected[row[1]] = true
		for part := range strings.SplitSeq(row[2], "; ") {
			pkg, names, _ := strings.Cut(part, ": ")
			all := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(names, -1)
			if len(all) == 0 {
				t.Errorf("PROOF.md, limit %q: %q names no test", row[1], part)
			}
			for _, name := range all {
				if !slices.Contains(tests[pkg], name[1]) {
					t.Errorf("PROOF.md, limit %q: %s has no %s", row[1], pkg, name[1])
				}
			}
		}
	}
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(source), "\n// # What it does not promise\n")
	list, _, _ = strings.Cut(list, "\n// # ")
	said := make(map[string]bool)
	for _, item := range regexp.MustCompile(`(?m)^//   - .*\n(?://     .*\n)*`).FindAllString(list, -1) {
		text := strings.Join(strings.Fields(strings.ReplaceAll(strings.TrimPrefix(item, "//   - "), "\n//", " ")), " ")
		said[text] = true
		if !expected[text] {
			t.Errorf("doc.go says %q, and PROOF.md names no test that expects it", text)
		}
	}
	for text := range expected {
		if !said[text] {
			t.Errorf("PROOF.md has the limit %q, and doc.go does not say it", text)
		}
	}
}

// TestGuarantees checks that each row of GUARANTEES.md names tests, and that these
// tests exist.
func TestGuarantees(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("GUARANTEES.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, _ := readTests()
	rows, head := 0, true
	for line := range strings.SplitSeq(string(page), "\n") {
		if !strings.HasPrefix(line, "| ") {
			head = !strings.HasPrefix(line, "|-") // the next rows are not the head of a table
			continue
		}
		if head {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		for part := range strings.SplitSeq(cells[len(cells)-1], "; ") {
			packages, names, _ := strings.Cut(part, ": ")
			all := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(names, -1)
			if len(all) == 0 {
				t.Errorf("GUARANTEES.md, %.60s…: %q names no test", line, part)
			}
			for pkg := range strings.SplitSeq(packages, ", ") {
				for _, name := range all {
					if !slices.Contains(tests[pkg], name[1]) {
						t.Errorf("GUARANTEES.md, %.60s…: %s has no %s", line, pkg, name[1])
					}
				}
			}
		}
	}
	if rows < 30 {
		t.Errorf("GUARANTEES.md has %d rows, want 30 at least", rows)
	}
}
