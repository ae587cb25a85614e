package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m, main) }

func TestGRPC(t *testing.T) {
	t.Run("embedded Redis with dropped replies", func(t *testing.T) {
		t.Parallel()
		out, status := run(t)
		if status != 0 || !strings.Contains(out, "24 charged once, 0 more than once, 0 never; 0 wrong receipts, 0 calls failed, accounts off by 0") || strings.Contains(out, " 0 replies dropped") {
			t.Errorf("exit status %d:\n%s", status, out)
		}
	})
	t.Run("real Redis", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		out, status := run(t, "-redis", server.Addr, "-json", "-orders", "40", "-accounts", "10", "-drops", "2", "-replicas", "3")
		var result struct {
			Once, Dropped, Tries, Off int
			Orders                    []payment
		}
		err := json.Unmarshal([]byte(out), &result)
		if err != nil || status != 0 || result.Once != 40 || result.Dropped < 80 || result.Off != 0 || len(result.Orders) != 40 {
			t.Errorf("exit status %d, %v:\n%s", status, err, out)
		}
		for _, p := range result.Orders {
			if !p.right() {
				t.Errorf("got %+v", p)
			}
		}
	})
	t.Run("without the rules", func(t *testing.T) {
		t.Parallel()
		out, status := run(t, "-unguarded")
		if status != 1 || strings.Contains(out, " 0 more than once") {
			t.Errorf("exit status %d:\n%s", status, out)
		}
	})
	t.Run("harmless run without the rules", func(t *testing.T) {
		t.Parallel()
		out, status := run(t, "-unguarded", "-drops", "0", "-orders", "1")
		if status != 2 || !strings.Contains(out, "shows nothing") {
			t.Errorf("exit status %d:\n%s", status, out)
		}
	})
	t.Run("errors exit with status 2", func(t *testing.T) {
		t.Parallel()
		for want, args := range map[string][]string{
			"at least 1": {"-orders", "0"},
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
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
