package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// write prints s as a table with its verdicts.
func (s *Section) write(out io.Writer) {
	fmt.Fprintf(out, "\n%s (%s)\n", s.Title, s.Name)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := []string{""}
	for _, c := range s.Columns {
		head = append(head, c.Title)
		if c.Ratio {
			head = append(head, "× best peer")
		}
	}
	fmt.Fprintln(w, strings.Join(head, "\t")+"\t")
	known := make(map[string]bool)
	for _, c := range contenders() {
		known[c.name] = true
	}
	strangers := slices.ContainsFunc(s.Rows, func(r *Row) bool { return !known[r.Contender] })
	for _, c := range contenders() {
		if r := s.row(c.name); r != nil {
			fmt.Fprintln(w, strings.Join(s.cells(r), "\t")+"\t")
		} else if !strangers {
			fmt.Fprintln(w, c.name+strings.Repeat("\t—", len(head)-1)+"\t")
		}
	}
	for _, r := range s.Rows {
		if !known[r.Contender] { // a contender of this scenario only
			fmt.Fprintln(w, strings.Join(s.cells(r), "\t")+"\t")
		}
	}
	_ = w.Flush()
	for _, r := range s.Rows {
		for _, n := range r.Notes {
			fmt.Fprintf(out, "  %s: %s\n", r.Contender, n)
		}
	}
	for _, v := range s.Verdicts {
		met := "met"
		if !v.Met {
			met = "NOT MET"
		}
		fmt.Fprintf(out, "  target %s: %s, %s\n", v.Target, v.Text, met)
		if v.Why != "" {
			fmt.Fprintf(out, "    %s\n", v.Why)
		}
	}
}

func (s *Section) cells(r *Row) []string {
	cells := []string{r.Contender}
	for _, c := range s.Columns {
		cell := "—"
		if v, ok := r.Figures[c.Key]; ok {
			cell = r.bound(c, fmt.Sprintf("%.*f", c.Digits, v))
		}
		cells = append(cells, cell)
		if !c.Ratio {
			continue
		}
		cell = "—"
		if v, ok := r.Ratios[c.Key]; ok {
			cell = r.bound(c, short(v))
		}
		cells = append(cells, cell)
	}
	return cells
}

// bound marks a figure that is only a bound.
func (r *Row) bound(c Column, text string) string {
	if !slices.Contains(r.Bounded, c.Key) {
		return text
	}
	if c.Better == More {
		return "<" + text
	}
	return ">" + text
}

// write prints the header of the report.
func (r *Report) write(out io.Writer) {
	fmt.Fprintf(out, "%d CPUs, %s/%s, Redis %s on %s, %s", r.Machine.CPUs, r.Machine.OS, r.Machine.Arch,
		r.Versions["redis"], r.Machine.Network, r.Versions["go"])
	for _, path := range slices.Sorted(maps.Keys(r.Versions)) {
		if strings.Contains(path, "/") {
			fmt.Fprintf(out, ", %s %s", strings.TrimPrefix(path, "github.com/"), r.Versions[path])
		}
	}
	fmt.Fprintln(out)
	for _, c := range contenders() {
		fmt.Fprintf(out, "  %s: %s\n", c.name, c.about)
	}
}
