package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
	pitfalls "github.com/lockkit/lockkit/examples/pitfalls"
)

func TestMain(m *testing.M) { testserver.Main(m, pitfalls.Main) }

func play(t *testing.T, args ...string) (out, complaints string, status int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// playWhole runs the program like play. If the machine stood still during a scene, it
// runs the program again, at most twice.
func playWhole(t *testing.T, args ...string) (out, complaints string, status int) {
	t.Helper()
	for range 3 {
		out, complaints, status = play(t, args...)
		if status != 2 || !strings.Contains(out, stoodStill) {
			break
		}
		t.Log(out)
	}
	return out, complaints, status
}

const stoodStill = "the machine stood still"

// check fails the test unless the output out has every scene, with these verdicts for
// its two sides.
func check(t *testing.T, out, naive, kit string) {
	t.Helper()
	lines := strings.Split(out, "\n")
	for i, title := range pitfalls.Titles() {
		at := 3 * i
		if at+2 >= len(lines) {
			t.Fatalf("the output ends before scene %d:\n%s", i+1, out)
		}
		if want := fmt.Sprintf("%d. %s", i+1, title); lines[at] != want {
			t.Errorf("got the line %q, want %q", lines[at], want)
		}
		for j, want := range []string{naive, kit} {
			if got := strings.Join(strings.Fields(lines[at+1+j]), " "); !strings.HasPrefix(got, want+" ") {
				t.Errorf("scene %d: got %q, want it to begin with %q", i+1, got, want)
			}
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestProgram(t *testing.T) {
	t.Parallel()
	t.Run("embedded Redis", func(t *testing.T) {
		t.Parallel()
		out, complaints, status := playWhole(t)
		if status != 0 || complaints != "" {
			t.Errorf("exit status %d, want 0; complaints: %q", status, complaints)
		}
		check(t, out, "naive fails ok", "kit holds ok")
	})

	// The program leaves no key, and changes no key of another program.
	t.Run("real Redis", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		server.Do("SET", "somebody's", "else")
		out, complaints, status := playWhole(t, "-redis", server.Addr)
		if status != 0 || complaints != "" {
			t.Errorf("exit status %d, want 0; complaints: %q", status, complaints)
		}
		check(t, out, "naive fails ok", "kit holds ok")
		// A request that a process sent at its end may leave a tombstone, which expires.
		testserver.Eventually(t, 30*time.Second, "its keys are gone", func() bool {
			return fmt.Sprint(server.Do("KEYS", "*")) == "[somebody's]"
		})
		if v := server.Do("GET", "somebody's"); v != "else" {
			t.Errorf("another program's key is now %v", v)
		}
	})

	t.Run("interrupt cleans up", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-redis", server.Addr)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testserver.Eventually(t, 30*time.Second, "it has begun", func() bool {
			return strings.Contains(fmt.Sprint(server.Do("KEYS", "*")), "pitfalls:")
		})
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if status := cmd.ProcessState.ExitCode(); status != 2 {
			t.Errorf("exit status %d, want 2", status)
		}
		testserver.Eventually(t, 30*time.Second, "its keys are gone", func() bool {
			return fmt.Sprint(server.Do("KEYS", "*")) == "[]"
		})
	})

	t.Run("no server at the address", func(t *testing.T) {
		t.Parallel()
		_, complaints, status := play(t, "-redis", "127.0.0.1:1")
		if status != 2 || !strings.Contains(complaints, "127.0.0.1:1") {
			t.Errorf("exit status %d, want 2; complaints: %q", status, complaints)
		}
	})

	t.Run("unknown argument", func(t *testing.T) {
		t.Parallel()
		if _, complaints, status := play(t, "now"); status != 2 || !strings.Contains(complaints, `"now"`) {
			t.Errorf("exit status %d, want 2; complaints: %q", status, complaints)
		}
	})
}

func TestVerdicts(t *testing.T) {
	t.Parallel()

	// Each scene distinguishes the kit from the naive way.
	t.Run("kit and naive way swapped", func(t *testing.T) {
		t.Parallel()
		var out strings.Builder
		status, err := pitfalls.RunSwapped(t.Context(), &out, "")
		for range 2 {
			if !strings.Contains(out.String(), stoodStill) {
				break
			}
			out.Reset()
			status, err = pitfalls.RunSwapped(t.Context(), &out, "")
		}
		if status != 1 || err != nil {
			t.Errorf("exit status %d, %v; want 1", status, err)
		}
		check(t, out.String(), "naive holds FAIL", "kit fails FAIL")
	})

	for _, c := range []struct {
		name                         string
		naiveFails, kitFails, broken bool
		status                       int
		want                         string
	}{
		{"naive fails and kit holds", true, false, false, 0, "0 not as expected, 0 not played"},
		{"naive holds and kit holds", false, false, false, 1, "1 not as expected, 0 not played"},
		{"naive fails and kit fails", true, true, false, 1, "1 not as expected, 0 not played"},
		{"naive holds and kit fails", false, true, false, 1, "2 not as expected, 0 not played"},
		{"scene not played", true, false, true, 2, "0 not as expected, 1 not played"},
		{"kit fails and scene not played", true, true, true, 1, "1 not as expected, 1 not played"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			status, err := pitfalls.RunFake(t.Context(), &out, c.naiveFails, c.kitFails, c.broken)
			if status != c.status || err != nil {
				t.Errorf("exit status %d, %v; want %d", status, err, c.status)
			}
			if !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "FAIL") != (c.status != 0) {
				t.Errorf("want %q in:\n%s", c.want, &out)
			}
		})
	}

	t.Run("run cut short", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var out strings.Builder
		if status, err := pitfalls.Run(ctx, &out, ""); status == 0 {
			t.Errorf("exit status 0, %v:\n%s", err, &out)
		}
	})
}
