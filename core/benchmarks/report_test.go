package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// reportOf returns a report of three scenarios with fixed rounds.
func reportOf() *Report {
	rounds := func(key string, values ...float64) (all []map[string]float64) {
		for _, v := range values {
			all = append(all, map[string]float64{key: v})
		}
		return all
	}
	r := newReport("default", "7.0")
	own := ownKeys("own-64", 64, true)
	r.Sections = []*Section{
		{Name: own.name, Title: own.title, Columns: own.columns, Rows: []*Row{
			{Contender: "lockkit", Kind: Kit, Rounds: rounds("rate", 300, 330, 360)},
			{Contender: "lockkit plain keys", Kind: Kit, Rounds: rounds("rate", 150, 150, 150)},
			{Contender: "redislock", Kind: Peer, Rounds: rounds("rate", 10, 10, 10)},
			{Contender: "rueidislock", Kind: Peer, Rounds: rounds("rate", 100, 110, 180)},
			{Contender: "bare commands", Kind: Bare, Rounds: rounds("rate", 900, 900, 900)},
		}},
		{Name: "crowd", Title: "a <crowd>", Columns: crowd(defaultScale).columns, Rows: []*Row{
			{Contender: "lockkit", Kind: Kit, Rounds: rounds("served", 1, 1)},
			{Contender: "redislock", Kind: Peer, Rounds: rounds("served", 20), Bounded: []string{"served"}},
			{Contender: "rueidislock", Kind: Peer, Rounds: rounds("served", 4, 2)},
		}},
	}
	r.Versions["MariaDB"] = "10.11.6"
	r.Sections = append(r.Sections, &Section{Name: inSQL().name, Title: inSQL().title, Columns: inSQL().columns, Rows: []*Row{
		{Contender: "MariaDB: lockkit sqlstore", Kind: Kit, Rounds: []map[string]float64{{"rate1": 812.4, "rate16": 2345.6, "trips": 2}}},
	}})
	r.Sections[2].finish()
	for i, targets := range [][]target{own.targets, crowd(defaultScale).targets} {
		r.Sections[i].finish()
		r.Sections[i].judge(targets)
	}
	return r
}

func TestRatios_BestPeer(t *testing.T) {
	t.Parallel()
	own, crowd := reportOf().Sections[0], reportOf().Sections[1]
	for _, want := range []struct {
		s         *Section
		contender string
		key       string
		ratio     float64
	}{
		{own, "lockkit", "rate", 3}, // median of 3, 3 and 2
		{own, "rueidislock", "rate", 1},
		{own, "bare commands", "rate", 900.0 / 110},
		{crowd, "lockkit", "served", 0.375},
		{crowd, "redislock", "served", 5},
	} {
		if got := want.s.row(want.contender).Ratios[want.key]; got != want.ratio {
			t.Errorf("%s: %s %s: ratio %v, want %v", want.s.Name, want.contender, want.key, got, want.ratio)
		}
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for i, want := range [][]string{
		{"lockkit: cycles/s ≥ 1.50 × the best peer: 3 × true", "lockkit plain keys: cycles/s ≥ 1.70 × the best peer: 1.36 × false"},
		{"lockkit: served s ≤ 0.50 × the best peer: 0.38 × true"},
	} {
		var got []string
		for _, v := range reportOf().Sections[i].Verdicts {
			met := " false"
			if v.Met {
				met = " true"
			}
			got = append(got, v.Target+": "+v.Text+met)
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("verdicts are %q, want %q", got, want)
		}
	}
}

// again returns r after writing it as JSON and reading it.
func again(t *testing.T, r *Report) *Report {
	t.Helper()
	text, err := r.json()
	if err != nil {
		t.Fatal(err)
	}
	read := new(Report)
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	return read
}

func TestChart_Results(t *testing.T) {
	t.Parallel()
	svg, err := again(t, reportOf()).chart()
	if err != nil {
		t.Fatal(err)
	}
	for in := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := in.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("it is no XML: %v", err)
		}
	}
	for _, word := range []string{
		"64 goroutines, own keys", "3 × (330/s)", "a &lt;crowd&gt;, all served", "2.67 × (1 s)", "&lt; 0.20 × (over 20 s)", "rueidislock",
	} {
		if !bytes.Contains(svg, []byte(word)) {
			t.Errorf("it does not say %q", word)
		}
	}
}

func TestTable_Markers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(path, []byte("above\n"+readmeBegin+"\nold\n"+readmeEnd+"\nbelow\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := again(t, reportOf()).intoReadme(path); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p := string(page)
	if !strings.HasPrefix(p, "above\n"+readmeBegin) || !strings.HasSuffix(p, readmeEnd+"\nbelow\n") || strings.Contains(p, "old") {
		t.Errorf("README became\n%s", p)
	}
	for _, line := range []string{
		"| 64 goroutines, own keys | 3 | 1.36 | 0.091 | — | 1 (110/s) | 8.18 |\n",
		"| MariaDB 10.11.6: lockkit sqlstore | 812 | 2,346 | 2.0 |\n",
		"\n2 of 3 targets are met. Not met:\n",
		"- 64 goroutines, own keys, lockkit plain keys: cycles/s ≥ 1.70 × the best peer: 1.36 ×\n",
	} {
		if !strings.Contains(p, line) {
			t.Errorf("README has no %q:\n%s", line, p)
		}
	}
	if err := os.WriteFile(path, []byte("no markers"), 0o600); err != nil {
		t.Fatal(err)
	}
	if reportOf().intoReadme(path) == nil {
		t.Error("a file without markers was accepted")
	}
}

// TestFrontPages_Speeds checks that the two front pages have the speeds of result.json.
func TestFrontPages_Speeds(t *testing.T) {
	t.Parallel()
	r, err := readReport("result.json")
	if err != nil {
		t.Fatal(err)
	}
	row := func(scenario, who string) *Row {
		s := r.section(scenario)
		if s == nil || s.row(who) == nil {
			t.Fatalf("result.json has no %s of %s", scenario, who)
		}
		return s.row(who)
	}
	times := func(scenario string) string {
		return strconv.FormatFloat(math.Round(10*row(scenario, "lockkit").Ratios["rate"])/10, 'f', -1, 64)
	}
	latency := func(store string) float64 {
		return math.Round(row("stores", store).Figures["p50"] / row("stores", "Redis").Figures["p50"])
	}
	own, hot, one := times("own-64"), times("one-key"), times("own-1")
	redlock, zk, pg, maria := latency("Redlock of three"), latency("ZooKeeper"), latency("PostgreSQL"), latency("MariaDB")
	for page, wants := range map[string][]string{
		"README.md": {
			fmt.Sprintf("%s× for 64 goroutines on free locks, %s× on one key, %s× for one goroutine", own, hot, one),
			fmt.Sprintf("relative to one Redis | 1 | %v | %v | PostgreSQL %v, MariaDB %v |", redlock, zk, pg, maria),
		},
		"README.zh-CN.md": {
			fmt.Sprintf("64 个 goroutine 各用自己的锁为 %s 倍，争用同一个键为 %s 倍", own, hot),
			fmt.Sprintf("为 %s 倍", one),
			fmt.Sprintf("（单个 Redis 为 1） | 1 | %v | %v | PostgreSQL %v，MariaDB %v |", redlock, zk, pg, maria),
		},
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s does not contain %q", page, want)
			}
		}
	}
}
