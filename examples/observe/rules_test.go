package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestRules(t *testing.T) {
	t.Parallel()
	t.Run("promtool accepts the rules", func(t *testing.T) {
		promtool(t, nil, "check", "rules", "rules.yaml")
	})
	t.Run("they do what their tests say", func(t *testing.T) {
		promtool(t, nil, "test", "rules", "rules_test.yaml")
	})
	// Each alert has a test in which it fires, one in which it does not, and a place in
	// the runbook.
	t.Run("tests and runbook of alerts", func(t *testing.T) {
		rules, tests, runbook := read(t, "rules.yaml"), read(t, "rules_test.yaml"), read(t, "../../core/OPERATIONS.md")
		alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
		places := regexp.MustCompile(`runbook: \S+/core/OPERATIONS.md#(\S+)`).FindAllStringSubmatch(rules, -1)
		if len(alerts) == 0 || len(alerts) != len(places) {
			t.Errorf("%d alerts, %d places in the runbook", len(alerts), len(places))
		}
		for _, a := range alerts {
			quiet := strings.Contains(tests, "alertname: "+a[1]+"}\n")
			fires := regexp.MustCompile(`alertname: ` + a[1] + `\n +exp_alerts:`).MatchString(tests)
			if !quiet || !fires || !strings.Contains(runbook, "`"+a[1]+"`") {
				t.Errorf("%s: quiet %v, fires %v, or the runbook does not have it", a[1], quiet, fires)
			}
		}
		headings := map[string]bool{}
		for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(runbook, -1) {
			headings[strings.ReplaceAll(strings.ToLower(h[1]), " ", "-")] = true
		}
		for _, p := range places {
			if !headings[p[1]] {
				t.Errorf("the runbook has no heading #%s", p[1])
			}
		}
	})
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	t.Run("promtool can read each expression", func(t *testing.T) {
		rules := "groups:\n- name: panels\n  rules:\n"
		for i, expr := range panelExprs(t) {
			rules += fmt.Sprintf("  - {record: 'panel:%d', expr: '%s'}\n", i, expr)
		}
		file := filepath.Join(t.TempDir(), "panels.yaml")
		if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
			t.Fatal(err)
		}
		promtool(t, nil, "check", "rules", file)
	})
	t.Run("fields of panels", func(t *testing.T) {
		seen := map[int]bool{}
		for _, p := range panels(t) {
			if seen[p.ID] || p.Title == "" {
				t.Errorf("panel %d %q", p.ID, p.Title)
			}
			seen[p.ID] = true
			if p.Type != "row" && (p.Datasource.UID != "${datasource}" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0) {
				t.Errorf("panel %d %q: %+v", p.ID, p.Title, p)
			}
		}
	})
}

type panel struct {
	ID          int
	Type, Title string
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ UID string }
	FieldConfig struct {
		Defaults struct {
			Unit, NoValue string
			Max           float64
			Thresholds    struct {
				Steps []struct {
					Color string
					Value float64
				}
			}
		}
	}
	Targets []struct{ Expr, LegendFormat string }
}

func panels(t *testing.T) []panel {
	t.Helper()
	var d struct{ Panels []panel }
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d.Panels
}

// panelExprs returns the expressions of the dashboard, with values for its variables.
func panelExprs(t *testing.T) (all []string) {
	t.Helper()
	for _, p := range panels(t) {
		for _, target := range p.Targets {
			all = append(all, withValues(target.Expr, "1m", "1h"))
		}
	}
	return all
}

// withValues replaces the variables of an expression. The result selects all services
// and locks, over these times.
func withValues(expr, rateInterval, all string) string {
	return strings.NewReplacer("$job", ".*", "$name", ".*", "$__rate_interval", rateInterval, "$__range", all).Replace(expr)
}

// ruleExprs returns the expressions of the rules: the text between expr and the next
// field, without comments.
func ruleExprs(t *testing.T) (all []string) {
	t.Helper()
	rules := regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(read(t, "rules.yaml"), "")
	for _, m := range regexp.MustCompile(`(?s)\bexpr: (.*?)\n        (?:for|labels):`).FindAllStringSubmatch(rules, -1) {
		all = append(all, m[1])
	}
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func promtool(t *testing.T, in io.Reader, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		testserver.Missing(t, "promtool is not installed (apt-get install prometheus, or brew install prometheus)")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}
