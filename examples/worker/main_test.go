package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestWorker(t *testing.T) {
	program := build(t)

	for name, addr := range map[string]func(*testing.T) string{
		"the embedded Redis": func(*testing.T) string { return "" },
		"a real Redis":       func(t *testing.T) string { return testserver.StartRedis(t).Addr },
	} {
		// No booking is lost, and the job runs once for each tick.
		t.Run("bookings and job on "+name, func(t *testing.T) {
			t.Parallel()
			out, status := run(t, program, "-redis", addr(t))
			// A machine on which a task takes a second to start is too busy, which is
			// not a fault of the program.
			for range 3 {
				if status != 2 || !strings.Contains(out, "too busy") {
					break
				}
				out, status = run(t, program, "-redis", addr(t))
			}
			if status != 0 || !strings.Contains(out, "3000 tasks on 8 accounts by 24 workers of 3 replicas") ||
				!strings.Contains(out, " 0 accounts wrong, by 0; 0 tasks archived, 0 retries burned") ||
				!strings.Contains(out, "of 3 ticks it ran once in 3, more often in 0, never in 0") {
				t.Errorf("exit status %d:\n%s", status, out)
			}
		})
	}
	t.Run("without locks", func(t *testing.T) {
		t.Parallel()
		out, status := run(t, program, "-unlocked", "-ticks", "1")
		if status != 1 || strings.Contains(out, " 0 accounts wrong") {
			t.Errorf("exit status %d:\n%s", status, out)
		}
	})
	t.Run("harmless run without locks", func(t *testing.T) {
		t.Parallel()
		out, status := run(t, program, "-unlocked", "-tasks", "1", "-ticks", "1")
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
			if out, status := run(t, program, args...); status != 2 || !strings.Contains(out, want) {
				t.Errorf("%v: exit status %d, without %q:\n%s", args, status, want, out)
			}
		}
	})
}

func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "worker")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// run returns the program's output on stdout and stderr, and its exit code.
func run(t *testing.T, program string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}
