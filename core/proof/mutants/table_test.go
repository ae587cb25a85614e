package mutants_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var write = flag.Bool("write", false, "write the table into core/PROOF.md")

// TestTable writes the part of PROOF.md between these lines.
const (
	tableBegin = "<!-- mutants: go test ./core/proof/mutants -run TestTable -write -->\n"
	tableEnd   = "<!-- /mutants -->"
)

// TestStale finds mutants that no longer apply, without running them.
func TestStale(t *testing.T) {
	root, all := mutants(t)
	for _, m := range all {
		if _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
}

func TestTable(t *testing.T) {
	const name = "../../PROOF.md"
	_, all := mutants(t)
	var table strings.Builder
	table.WriteString("\n| mistake | what it breaks | hazard | caught by |\n|---|---|---|---|\n")
	for _, m := range all {
		fmt.Fprintf(&table, "| %s | %s | %s | %s: %s |\n", m.Name, m.Breaks, m.Hazard, m.Package, m.Test)
	}
	table.WriteString("\n")
	document, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(document, []byte(tableBegin))
	old, after, ok2 := bytes.Cut(rest, []byte(tableEnd))
	switch {
	case !ok || !ok2:
		t.Fatalf("PROOF.md has no line %s, or none %s after it", tableBegin, tableEnd)
	case string(old) == table.String():
	case *write:
		text := string(before) + tableBegin + table.String() + tableEnd + string(after)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table in PROOF.md is not that of the mutants: go test ./core/proof/mutants -run TestTable -write")
	}
}
