package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestMain(m *testing.M) { testserver.Main(m, main) }

func TestObserve(t *testing.T) {
	t.Run("errors exit with status 2", func(t *testing.T) {
		t.Parallel()
		for want, args := range map[string][]string{
			"-for must":     {"-for", "1s"},
			"-stay must":    {"-stay", "2h"},
			"-clients must": {"-clients", "0"},
			"unexpected":    {"now"},
			"redis at":      {"-redis", "127.0.0.1:1"},
		} {
			out, err := exec.CommandContext(t.Context(), os.Args[0], args...).CombinedOutput()
			var exit *exec.ExitError
			ok := errors.As(err, &exit)
			if !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), want) {
				t.Errorf("%v: %v, without %q:\n%s", args, err, want, out)
			}
		}
	})
	t.Run("embedded Redis", func(t *testing.T) {
		t.Parallel()
		tally.ProofOnly(t)
		// The race detector makes the embedded server too slow for the load.
		program := filepath.Join(t.TempDir(), "observe")
		if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		out, err := exec.CommandContext(t.Context(), program, "-for", "20s").CombinedOutput()
		if err != nil || strings.Contains(string(out), "MISSING") {
			t.Errorf("%v:\n%s", err, out)
		}
	})
	t.Run("embedded Redis starts", func(t *testing.T) {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-for", "10m")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		url, _, ok := strings.Cut(line, " is served")
		if err != nil || !ok {
			t.Fatalf("got %q and %v, want an address", line, err)
		}
		testserver.Eventually(t, time.Minute, "a lock is acquired", func() bool {
			time.Sleep(100 * time.Millisecond)
			return strings.Contains(get(t, url), `lockkit_outcome="acquired"`)
		})
		_ = cmd.Process.Signal(os.Interrupt)
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(errs.String(), "interrupted") {
			t.Errorf("got exit status %d and %q, want 2 and an interrupt", cmd.ProcessState.ExitCode(), errs.String())
		}
	})
	t.Run("real Redis", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		text := scraped(t, "-redis", server.Addr, "-clients", "4", "-for", "20s", "-stay", "5m")
		t.Run("series of rules and dashboard", func(t *testing.T) {
			all, err := parse(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			for file, exprs := range map[string][]string{"rules.yaml": ruleExprs(t), "dashboard.json": panelExprs(t)} {
				selectors := 0
				for _, expr := range exprs {
					for _, s := range selectorsOf(expr) {
						selectors++
						if !all.have(t, s) {
							t.Errorf("%s: there is no series %s", file, s)
						}
					}
				}
				t.Logf("%s: %d expressions, %d selectors", file, len(exprs), selectors)
				if selectors < 9 {
					t.Errorf("%s: only %d selectors were found", file, selectors)
				}
			}
			for _, s := range []string{"lockkit_losse_total", `lockkit_losses_total{lockkit_name="nobody"}`, `lockkit_losses_total{color!=""}`} {
				if all.have(t, s) {
					t.Errorf("there is a series %s", s)
				}
			}
		})
		t.Run("promtool accepts the scrape", func(t *testing.T) {
			promtool(t, strings.NewReader(text), "check", "metrics")
		})
		t.Run("no keys in the scrape", func(t *testing.T) {
			for _, secret := range []string{"customer-", "own-", "north", "daily", "observe-"} {
				if strings.Contains(text, secret) {
					t.Errorf("%q is in it", secret)
				}
			}
		})
		t.Run("nothing is left in Redis", func(t *testing.T) {
			keys, err := testclient.Redis(t, server.Addr).Keys(t.Context(), "*").Result()
			if err != nil || len(keys) > 0 {
				t.Errorf("%d keys: %v", len(keys), err)
			}
		})
	})
}

// scraped runs the program until its load is over, and returns the metrics that the
// program then serves. It fails the test unless the program exits with status 0.
func scraped(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var url, said, text string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if u, _, ok := strings.Cut(lines.Text(), " is served"); ok && url == "" {
			url = u
		}
		if strings.HasPrefix(lines.Text(), "the load is over") {
			text = get(t, url)
			_ = cmd.Process.Signal(os.Interrupt)
		}
	}
	if err := cmd.Wait(); err != nil || strings.Contains(said, "MISSING") || text == "" {
		t.Fatalf("%v:\n%s", err, said)
	}
	return text
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}

var (
	selector = regexp.MustCompile(`\b(lockkit_\w+)(\{[^}]*\})?`)
	grouping = regexp.MustCompile(`\b(by|on|without) \([^)]*\)`)
	matcher  = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
)

// selectorsOf returns the selectors of an expression. For each label by which the
// expression groups, it adds a selector of all series with this label.
func selectorsOf(expr string) []string {
	all := selector.FindAllString(grouping.ReplaceAllString(expr, ""), -1)
	for _, by := range grouping.FindAllString(expr, -1) {
		for label := range strings.SplitSeq(by[strings.Index(by, "(")+1:len(by)-1], ",") {
			all = append(all, `{`+strings.TrimSpace(label)+`=~".+"}`)
		}
	}
	return all
}

func (all samples) have(t *testing.T, selector string) bool {
	t.Helper()
	name, in, _ := strings.Cut(selector, "{")
	matchers := matcher.FindAllStringSubmatch(in, -1)
	for _, s := range all {
		if (name == "" || string(s.Metric[model.MetricNameLabel]) == name) && matched(t, s.Metric, matchers) {
			return true
		}
	}
	return false
}

func matched(t *testing.T, m model.Metric, matchers [][]string) bool {
	t.Helper()
	for _, match := range matchers {
		label, op, want := match[1], match[2], match[3]
		if label == "job" || label == "instance" {
			continue // Prometheus itself adds these labels
		}
		got := string(m[model.LabelName(label)])
		var ok bool
		switch op {
		case "=":
			ok = got == want
		case "!=":
			ok = got != want
		case "=~":
			ok = regexp.MustCompile("^(?:" + want + ")$").MatchString(got)
		default:
			t.Fatalf("%v: this matcher is not known here", match[0])
		}
		if !ok {
			return false
		}
	}
	return true
}
