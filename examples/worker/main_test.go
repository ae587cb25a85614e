package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m, main) }

func TestWorker(t *testing.T) {
	tasks := strconv.Itoa(tally.Trials(3000))

	for name, addr := range map[string]func(*testing.T) string{
		"the embedded Redis": func(*testing.T) string { return "" },
		"a real Redis":       func(t *testing.T) string { return testserver.StartRedis(t).Addr },
	} {
		t.Run("bookings and job on "+name, func(t *testing.T) {
			t.Parallel()
			out, status := run(t, "-tasks", tasks, "-redis", addr(t))
			// That a machine is too busy is not a fault of the program.
			for range 3 {
				if status != 2 || !strings.Contains(out, "too busy") {
					break
				}
				out, status = run(t, "-tasks", tasks, "-redis", addr(t))
			}
			if status != 0 || !strings.Contains(out, tasks+" tasks on 8 accounts by 24 workers of 3 replicas") ||
				!strings.Contains(out, " 0 accounts wrong, by 0; 0 tasks archived, 0 retries burned") ||
				!strings.Contains(out, "of 3 ticks it ran once in 3, more often in 0, never in 0") {
				t.Errorf("exit status %d:\n%s", status, out)
			}
		})
	}
	t.Run("without locks", func(t *testing.T) {
		t.Parallel()
		out, status := run(t, "-unlocked", "-tasks", tasks, "-ticks", "1", "-redis", testserver.StartRedis(t).Addr)
		if status != 1 || strings.Contains(out, " 0 accounts wrong") {
			t.Errorf("exit status %d:\n%s", status, out)
		}
	})
	t.Run("harmless run without locks", func(t *testing.T) {
		t.Parallel()
		out, status := run(t, "-unlocked", "-tasks", "1", "-ticks", "1", "-redis", testserver.StartRedis(t).Addr)
		if status != 2 || !strings.Contains(out, "shows nothing") {
			t.Errorf("exit status %d:\n%s", status, out)
		}
	})
	t.Run("errors exit with status 2", func(t *testing.T) {
		t.Parallel()
		for want, args := range map[string][]string{
			"at least 1": {"-accounts", "0"},
			"unexpected": {"now"},
			"redis at":   {"-redis", "127.0.0.1:1"},
		} {
			if out, status := run(t, args...); status != 2 || !strings.Contains(out, want) {
				t.Errorf("%v: exit status %d, without %q:\n%s", args, status, want, out)
			}
		}
	})
}

// run returns the program's output on stdout and stderr, and its exit code.
func run(t *testing.T, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, os.Args[0], args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}
