package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestLeader(t *testing.T) {
	program := filepath.Join(t.TempDir(), "leader")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, addr := range map[string]func(*testing.T) string{
		"the embedded Redis": func(*testing.T) string { return "" },
		"a real Redis":       func(t *testing.T) string { return testserver.StartRedis(t).Addr },
	} {
		t.Run("leaders in turn, "+name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, program, "-redis", addr(t)).CombinedOutput()
			if err != nil || strings.Count(string(out), " leads after ") != 3 || !strings.Contains(string(out), "is told to stop") {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}
