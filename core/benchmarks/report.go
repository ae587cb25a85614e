package main

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// Report is the result of one run.
type Report struct {
	Scale    string // short, default or full
	Machine  Machine
	Versions map[string]string // of modules, Go and servers
	Setups   map[string]string // by contender
	Sections []*Section
	Failures []string // overlaps and errors
}

// Machine describes the machine of the run.
type Machine struct {
	OS, Arch string
	CPUs     int
	Network  string
	Others   float64 // share of other programs during the run, in percent; -1 if unknown
}

// Section is one scenario.
type Section struct {
	Name, Title, About string
	Columns            []Column
	Rows               []*Row
	Verdicts           []Verdict
}

// Column is one figure of the rows.
type Column struct {
	Key, Title string
	Digits     int    // digits after the point
	Better     Better // whether more or less is better
	Ratio      bool   // the column has a ratio
}

// Better selects the better of two figures.
type Better string

const (
	More Better = "more"
	Less Better = "less"
)

// Row is one contender.
type Row struct {
	Contender string
	Kind      Kind
	Figures   map[string]float64 // medians of the rounds
	Ratios    map[string]float64 // to the best peer: medians of the rounds' ratios
	// Bounded are the figures that are only a bound: the true figure is worse.
	Bounded []string             `json:",omitempty"`
	Rounds  []map[string]float64 // in order
	Notes   []string             `json:",omitempty"`
	// These are sums of all rounds. Overlaps counts the moments with two holders at
	// once, and Errors the failed acquires and releases. Unserved counts the goroutines
	// that still waited for a free key long after the window. Stuck counts the
	// goroutines that did not return after their context was canceled.
	Overlaps, Errors, Unserved, Stuck int64  `json:",omitempty"`
	Error                             string `json:",omitempty"` // the first error
}

func newReport(scale string, redis string) *Report {
	r := &Report{
		Scale:    scale,
		Machine:  Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Network: "loopback", Others: -1},
		Versions: map[string]string{"go": runtime.Version(), "redis": redis},
		Setups:   map[string]string{},
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, d := range build.Deps {
			if d.Replace == nil && named[d.Path] {
				r.Versions[d.Path] = d.Version
			}
		}
	}
	for _, c := range contenders() {
		r.Setups[c.name] = c.about
	}
	return r
}

// named has the modules whose versions the report contains.
var named = map[string]bool{
	"github.com/bsm/redislock": true, "github.com/go-redsync/redsync/v4": true,
	"github.com/redis/rueidis": true, "github.com/redis/go-redis/v9": true,
	"github.com/go-sql-driver/mysql": true, "github.com/jackc/pgx/v5": true,
}

// section returns the section of a scenario, or nil if the scenario was not run.
func (r *Report) section(name string) *Section {
	i := slices.IndexFunc(r.Sections, func(s *Section) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return r.Sections[i]
}

// row returns the row of a contender, or nil if the contender did not take part.
func (s *Section) row(contender string) *Row {
	i := slices.IndexFunc(s.Rows, func(r *Row) bool { return r.Contender == contender })
	if i < 0 {
		return nil
	}
	return s.Rows[i]
}

// finish computes the medians, and the ratios to the best peer.
func (s *Section) finish() {
	for _, r := range s.Rows {
		r.Notes = append(r.Notes, r.wrongs()...)
		r.Figures, r.Ratios = map[string]float64{}, map[string]float64{}
		for _, c := range s.Columns {
			var all []float64
			for _, round := range r.Rounds {
				if v, ok := round[c.Key]; ok {
					all = append(all, v)
				}
			}
			if len(all) > 0 {
				r.Figures[c.Key] = median(all)
			}
		}
	}
	for _, c := range s.Columns {
		if !c.Ratio {
			continue
		}
		if best := s.best(c); best != nil {
			for _, r := range s.Rows {
				if v, ok := ratio(r, best, c.Key); ok {
					r.Ratios[c.Key] = v
				}
			}
		}
	}
}

// best returns the peer with the best figure, or nil if no peer has the figure.
func (s *Section) best(c Column) *Row {
	var peers []*Row
	for _, r := range s.Rows {
		if _, ok := r.Figures[c.Key]; ok && r.Kind == Peer {
			peers = append(peers, r)
		}
	}
	if len(peers) == 0 {
		return nil
	}
	return slices.MinFunc(peers, func(a, b *Row) int {
		if c.Better == More {
			a, b = b, a
		}
		return cmp.Compare(a.Figures[c.Key], b.Figures[c.Key])
	})
}

// ratio returns the median of the rounds' ratios of a to b.
func ratio(a, b *Row, key string) (float64, bool) {
	var all []float64
	for i := range min(len(a.Rounds), len(b.Rounds)) {
		x, ok := a.Rounds[i][key]
		y, ok2 := b.Rounds[i][key]
		if ok && ok2 && y != 0 {
			all = append(all, x/y)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return median(all), true
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	n := len(all)
	if n%2 == 1 {
		return all[n/2]
	}
	return (all[n/2-1] + all[n/2]) / 2
}

func percentile(sorted []float64, p float64) float64 {
	i := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[max(0, min(i, len(sorted)-1))]
}

// note adds a remark, unless the row already has it.
func (r *Row) note(text string) {
	if text = strings.TrimSpace(text); text != "" && !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// wrongs describes the row's overlaps, errors, and unserved or stuck goroutines.
func (r *Row) wrongs() (all []string) {
	add := func(n int64, format string, more ...any) {
		if n > 0 {
			all = append(all, fmt.Sprintf(format, append([]any{n}, more...)...))
		}
	}
	add(r.Overlaps, "OVERLAP: %d times two holders at once")
	add(r.Errors, "%d errors, the first: %s", r.Error)
	add(r.Unserved, "%d waiters were not served although the key was free, in all rounds")
	add(r.Stuck, "%d goroutines did not come back when their context ended")
	return all
}

// failures returns the wrongs of the rows of the kit, and of the rows with overlaps.
func (s *Section) failures() (all []string) {
	for _, r := range s.Rows {
		if r.Overlaps == 0 && r.Kind != Kit {
			continue
		}
		for _, w := range r.wrongs() {
			all = append(all, s.Name+": "+r.Contender+": "+w)
		}
	}
	return all
}
