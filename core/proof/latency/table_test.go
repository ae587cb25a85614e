package latency_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

var write = flag.Bool("write", false, "measure, and write the tables into core/OPERATIONS.md")

// TestTable writes the part of OPERATIONS.md between these lines.
const (
	page       = "../../OPERATIONS.md"
	tableBegin = "<!-- latency: go test ./core/proof/latency -run TestTable -write -timeout 1h -->\n"
	tableEnd   = "<!-- /latency -->"
)

// tableRounds is the minimum number of rounds of orders per cell.
const tableRounds = 4

// notApplicable is the cell of a fault that does not apply to a store.
const notApplicable = "-"

// tables lists the tables. The function shows returns the text of a cell.
var tables = []struct {
	head  string
	shows func(v view) string
}{
	{"answered within, p50 / p99 in ms", func(v view) string {
		return fmt.Sprintf("%d / %d", v.P50.Milliseconds(), v.P99.Milliseconds())
	}},
	{"409 and 503, in % of the answers", func(v view) string {
		return fmt.Sprintf("%.0f / %.1f", v.share(v.Refused), v.share(v.Failed))
	}},
}

// figures matches the figures of a cell.
var figures = regexp.MustCompile(`\| \d+ / \d+(\.\d)?`)

// TestTable compares the tables of the page with the stores and faults of this package.
// With -write it first measures the cells, one run after the other, and writes the
// tables. The test does not depend on any figure.
func TestTable(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(text, []byte(tableBegin))
	old, after, ok2 := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !ok2 {
		t.Fatalf("OPERATIONS.md has no line %s, or none %s after it", tableBegin, tableEnd)
	}
	if !*write {
		if line := differs(string(old)); line != "" {
			t.Errorf("OPERATIONS.md has other stores or faults at %q: go test ./core/proof/latency -run TestTable -write", line)
		}
		return
	}
	keep(t)
	conditions := fmt.Sprintf("Measured on %s on %d cores. The load average before the run was %s.",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), load())
	views := make(map[string]view)
	for _, at := range places {
		for _, f := range faults {
			if at.file && !f.onFiles() {
				continue
			}
			t.Run(at.name+" "+f.name, func(t *testing.T) {
				views[at.name+f.name] = run(t, at.open(t), f, max(tableRounds, long(10)))
			})
		}
	}
	if t.Failed() {
		t.Fatal("nothing is written")
	}
	table := "\n" + conditions + "\n" + render(func(n, place, fault int) string {
		return tables[n].shows(views[places[place].name+faults[fault].name])
	})
	if err := os.WriteFile(page, slices.Concat(before, []byte(tableBegin), []byte(table), []byte(tableEnd), after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// render returns the tables. The function cell returns the text of each cell whose fault
// applies to its store.
func render(cell func(table, place, fault int) string) string {
	var b strings.Builder
	for n, table := range tables {
		fmt.Fprintf(&b, "\n| %s |", table.head)
		for _, at := range places {
			fmt.Fprintf(&b, " %s |", at.title)
		}
		b.WriteString("\n|" + strings.Repeat("---|", len(places)+1) + "\n")
		for row, f := range faults {
			fmt.Fprintf(&b, "| %s |", f.title)
			for column, at := range places {
				text := notApplicable
				if !at.file || f.onFiles() {
					text = cell(n, column, row)
				}
				fmt.Fprintf(&b, " %s |", text)
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("\n")
	return b.String()
}

// differs returns the first line of the page's part that differs from render's output,
// or "". It ignores the figures.
func differs(text string) string {
	want := strings.Split(render(func(int, int, int) string { return "#" }), "\n")
	_, text, _ = strings.Cut(strings.TrimPrefix(text, "\n"), "\n") // the conditions
	got := strings.Split(text, "\n")
	for i, line := range got {
		if i >= len(want) || figures.ReplaceAllString(line, "| #") != want[i] {
			return line
		}
	}
	if len(got) < len(want) {
		return want[len(got)]
	}
	return ""
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
