package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
)

func TestMain(m *testing.M) {
	others = append(others, contender{name: "nothing", kind: Peer, open: openNothing})
	if child, code := runChild(); child {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// openNothing opens a lock that excludes nobody.
func openNothing(opening) (*locks, error) {
	acquire := func(context.Context, string) (lease, error) { return nothing{}, nil }
	return &locks{try: acquire, acquire: acquire, close: func() error { return nil }}, nil
}

type nothing struct{}

func (nothing) Release(context.Context) error { return nil }

var smokeScale = scale{
	name: "smoke", rounds: 1, window: 20 * time.Millisecond, drain: 10 * time.Second, handoffs: 6, handoffTime: 200 * time.Millisecond,
	crowd: 60, crowdRounds: 1, crowdWatch: 50 * time.Millisecond, crowdBound: 5 * time.Second,
	growth: []int{2, 4}, held: 200, heldWindow: 50 * time.Millisecond, heldAll: true, replays: 20,
}

func newBench(t *testing.T) *bench {
	s, err := startServer(t.Context())
	if errors.Is(err, errNoServer) && os.Getenv("LOCKKIT_REQUIRE_SERVERS") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return &bench{scale: smokeScale, ctx: context.Background(), server: s, report: newReport("smoke", s.version), log: io.Discard}
}

// takePart is the number of contenders that can take part in a scenario.
var takePart = map[string]int{
	"own-1": 7, "own-64": 7, "own-512": 7, "own-1-endless": 6, "own-64-endless": 6, "own-512-endless": 6, "one-key": 6, "readers": 2, "processes": 6,
	"hand-off": 7, "crowd": 5, "growth": 5, "held": 5, "replay": 2,
	"quorum": 4, "quorum-silent": 4, "quorum-five-silent": 4, "quorum-busy": 4, "quorum-busy-down": 4, "quorum-five-busy-down": 4,
}

func TestScenarios(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	takePart := maps.Clone(takePart)
	takePart["stores"], takePart["hot"] = 3, 3
	if all := postgresScenarios(); len(all) > 0 {
		takePart["stores"]++
		takePart["hot"]++
		for _, sc := range all {
			takePart[sc.name] = 2
		}
	}
	if initdb() != "" {
		takePart["sql"] += 4
	}
	if hasMariaDB() {
		takePart["sql"] += 3
		takePart["stores"]++
		takePart["hot"]++
	}
	if all := zookeeperScenarios(); len(all) > 0 {
		takePart["stores"]++
		takePart["hot"]++
		for _, sc := range all {
			takePart[sc.name] = 2
		}
	}
	if len(zookeeperScenarios()) == 0 && os.Getenv("LOCKKIT_REQUIRE_SERVERS") == "1" {
		t.Error(errNoZookeeper)
	}
	if len(postgresScenarios()) == 0 && os.Getenv("LOCKKIT_REQUIRE_SERVERS") == "1" {
		t.Error(errNoPostgres)
	}
	if !hasMariaDB() && os.Getenv("LOCKKIT_REQUIRE_SERVERS") == "1" {
		t.Error(errNoMariaDB)
	}
	b := newBench(t)
	all := scenarios(b.scale)
	if len(all) != len(takePart) {
		t.Errorf("%d scenarios, want %d", len(all), len(takePart))
	}
	for _, sc := range all {
		s, err := b.run(sc)
		if err != nil {
			t.Fatal(err)
		}
		check(t, s, sc, takePart[s.Name])
	}
	if len(b.report.Failures) > 0 {
		t.Errorf("failures: %q", b.report.Failures)
	}
	text, err := b.report.json()
	if err != nil {
		t.Fatal(err)
	}
	if host, err := os.Hostname(); err == nil && len(host) > 3 && bytes.Contains(text, []byte(host)) {
		t.Error("the results name the machine")
	}
}

func check(t *testing.T, s *Section, sc scenario, rows int) {
	t.Helper()
	if len(s.Rows) != rows {
		t.Errorf("%s: %d rows, want %d", s.Name, len(s.Rows), rows)
	}
	for _, r := range s.Rows {
		first := s.Columns[0].Key
		if v, ok := r.Figures[first]; !ok || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			t.Errorf("%s: %s: %s is %v", s.Name, r.Contender, first, v)
		}
	}
	for _, target := range sc.targets {
		if s.row(target.who) == nil {
			t.Errorf("%s: a target is for %q, who takes no part", s.Name, target.who)
		}
	}
	// Each cycle of these scenarios is one acquire and one release, with one to four
	// commands. Cycles that are only partly inside the window add some commands. On a
	// slow machine most or all cycles are of this kind.
	if strings.HasPrefix(s.Name, "own-1") {
		for _, r := range s.Rows {
			cut := 8 / max(r.Figures["rate"]*smokeScale.window.Seconds(), 1)
			if n, ok := r.Figures["commands"]; ok && (n < 1-cut || n > 4+cut) {
				t.Errorf("%s: %s: %v commands a cycle", s.Name, r.Contender, n)
			}
		}
	}
	if s.Name == "replay" {
		if n := s.row("lockkit").Figures["commands"]; n != 1 {
			t.Errorf("a replay is %v commands, want 1", n)
		}
	}
	var text bytes.Buffer
	s.write(&text)
	if !strings.Contains(text.String(), s.Title) || !strings.Contains(text.String(), s.Rows[0].Contender) {
		t.Errorf("%s: a table of\n%s", s.Name, &text)
	}
}

func TestSafety_LockWithoutEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, err := contenderOf("nothing")
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.open(opening{})
	if err != nil {
		t.Fatal(err)
	}
	g := newGate()
	found := map[string]func() (outcome, error){
		"goroutines": func() (outcome, error) {
			return b.cycle(c, load{
				goroutines: 8, key: func(int) string { return "k" }, gate: func(int) gate { return g }, hold: time.Millisecond,
				get: func(int) acquirer { return l.acquire }, window: b.window, drain: b.drain,
			})
		},
		"processes": func() (outcome, error) { return b.processRound(c, 0) },
		"crowd":     func() (outcome, error) { return b.crowdRound(c, "k") },
		"hand-off":  func() (outcome, error) { return b.handoffRound(c, 0) },
	}
	for name, round := range found {
		o, err := round()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r := &Row{Contender: c.name, Kind: c.kind}
		r.take(o)
		s := &Section{Name: name, Rows: []*Row{r}}
		s.finish()
		if text := strings.Join(s.failures(), "\n"); !strings.Contains(text, name+": nothing: OVERLAP") {
			t.Errorf("%s: no overlap was found: %q", name, text)
		}
	}
}

func TestPeer_FailedRound(t *testing.T) {
	t.Parallel()
	b := &bench{ctx: t.Context(), report: newReport("smoke", "0"), log: io.Discard}
	failing := func(times int) func(int) (outcome, error) {
		return func(int) (outcome, error) {
			if times--; times >= 0 {
				return outcome{}, errors.New("it hung")
			}
			return outcome{figures: map[string]float64{"p50": 1}}, nil
		}
	}
	closed := func() error { return nil }
	for _, c := range []struct {
		kind  Kind
		times int
		fails bool
	}{{Peer, 2, false}, {Peer, 3, true}, {Kit, 1, true}} {
		s := &Section{Name: "hand-off"}
		st := station{contender: contender{name: "it", kind: c.kind}, round: failing(c.times), close: closed}
		if err := b.interleave(s, 1, []station{st}); (err != nil) != c.fails {
			t.Errorf("%v that failed %d times: %v", c.kind, c.times, err)
		}
		if r := s.row("it"); !c.fails && (len(r.Rounds) != 1 || len(r.Notes) != 1) {
			t.Errorf("%d rounds, notes %q", len(r.Rounds), r.Notes)
		}
	}
}
