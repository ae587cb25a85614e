package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"
)

// scale has the sizes of all scenarios.
type scale struct {
	name   string
	rounds int
	window time.Duration // time unit of a round of one contender, in most scenarios

	drain time.Duration // time to wait for the last waiters of a round

	handoffs    int // number per round
	handoffTime time.Duration

	crowd       int
	crowdRounds int
	crowdWatch  time.Duration
	crowdBound  time.Duration

	growth []int

	held       int
	heldWindow time.Duration
	heldAll    bool // also measure lockkit plain keys and redsync

	replays int
}

var (
	shortScale = scale{
		name: "short", rounds: 3, window: 300 * time.Millisecond, drain: 5 * time.Second, handoffs: 60, handoffTime: 1500 * time.Millisecond,
		crowd: 10_000, crowdRounds: 1, crowdWatch: 2 * time.Second, crowdBound: 5 * time.Second,
		growth: []int{10, 100, 1000}, held: 20_000, heldWindow: ttl/2 + 2*time.Second, replays: 1000,
	}
	defaultScale = scale{
		name: "default", rounds: 5, window: 500 * time.Millisecond, drain: 5 * time.Second, handoffs: 100, handoffTime: 2500 * time.Millisecond,
		crowd: 10_000, crowdRounds: 2, crowdWatch: 20 * time.Second, crowdBound: 15 * time.Second,
		// The window is long enough for two extensions by a library that extends after
		// half of the TTL.
		growth: []int{10, 100, 1000}, held: 100_000, heldWindow: ttl + 2*time.Second, replays: 2000,
	}
	fullScale = func() scale {
		s := defaultScale
		s.name, s.heldWindow, s.heldAll = "full", 2*time.Minute, true
		return s
	}()
)

// scenario is one table of the report.
type scenario struct {
	name, title, about string
	columns            []Column
	targets            []target
	// run measures the scenario, and adds rows to s.
	run func(b *bench, s *Section) error
}

func scenarios(s scale) []scenario {
	return append([]scenario{
		ownKeys("own-1", 1, true), ownKeys("own-64", 64, true), ownKeys("own-512", 512, true),
		ownKeys("own-1-endless", 1, false), ownKeys("own-64-endless", 64, false), ownKeys("own-512-endless", 512, false),
		oneKey(), readers(), processes(), handoff(), crowd(s), growth(s), heldLeases(s), replay(),
		quorum(3, false), quorum(3, true), quorum(5, true), quorumBusy(3, false), quorumBusy(3, true), quorumBusy(5, true), stores(), hot(),
	}, slices.Concat(postgresScenarios(), sqlScenarios(), zookeeperScenarios())...)
}

// bench runs scenarios, most of them on one server.
type bench struct {
	scale
	ctx    context.Context // context of the whole run
	server *server
	report *Report
	log    io.Writer // receives the progress
}

// run runs one scenario and adds its section to the report.
func (b *bench) run(sc scenario) (*Section, error) {
	if err := b.server.wipe(b.ctx); err != nil {
		return nil, err
	}
	s := &Section{Name: sc.name, Title: sc.title, About: sc.about, Columns: sc.columns}
	b.report.Sections = append(b.report.Sections, s)
	start := time.Now()
	fmt.Fprintf(b.log, "%s ", sc.name)
	err := sc.run(b, s)
	fmt.Fprintf(b.log, " %.1fs\n", time.Since(start).Seconds())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sc.name, err)
	}
	s.finish()
	b.report.Failures = append(b.report.Failures, s.failures()...)
	s.judge(sc.targets)
	return s, nil
}

// station is a contender in a scenario.
type station struct {
	contender
	round func(round int) (outcome, error) // measures one round
	close func() error
}

// outcome is the result of one round of a contender.
type outcome struct {
	figures  map[string]float64
	bounded  []string // figures that are only a bound: the true figure is worse
	overlaps int64
	errors   int64  // failed acquires and releases
	first    string // the first error
	unserved int64  // number of goroutines, as in counts
	stuck    int64
	note     string
	last     bool // further rounds would take too long
}

// interleave runs n rounds, alternating between the stations, and adds their rows.
func (b *bench) interleave(s *Section, n int, stations []station) error {
	rows := make([]*Row, len(stations))
	over := make([]bool, len(stations))
	for i, st := range stations {
		rows[i] = &Row{Contender: st.name, Kind: st.kind}
		s.Rows = append(s.Rows, rows[i])
	}
	var errs []error
	for round := range n {
		for k := range stations {
			// The order rotates, so that no station always follows the same station.
			i := (k + round) % len(stations)
			if over[i] || len(errs) > 0 {
				continue
			}
			if err := context.Cause(b.ctx); err != nil {
				errs = append(errs, err)
				continue
			}
			runtime.GC()
			o, err := stations[i].round(round)
			// A peer may hang occasionally. Its round is then repeated, and the row
			// gets a note.
			for range 2 {
				if err == nil || stations[i].kind == Kit || context.Cause(b.ctx) != nil {
					break
				}
				fmt.Fprintf(b.log, " %s: %v ", stations[i].name, err)
				rows[i].note("a round failed and was repeated")
				o, err = stations[i].round(round)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", stations[i].name, err))
				continue
			}
			over[i] = o.last
			rows[i].take(o)
			fmt.Fprint(b.log, ".")
		}
	}
	for _, st := range stations {
		if err := st.close(); err != nil && st.kind == Kit {
			errs = append(errs, fmt.Errorf("%s: closing: %w", st.name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Row) take(o outcome) {
	r.Rounds = append(r.Rounds, o.figures)
	for _, key := range o.bounded {
		if !slices.Contains(r.Bounded, key) {
			r.Bounded = append(r.Bounded, key)
		}
	}
	r.note(o.note)
	r.Overlaps += o.overlaps
	r.Errors += o.errors
	r.Unserved += o.unserved
	r.Stuck += o.stuck
	if r.Error == "" {
		r.Error = o.first
	}
}
