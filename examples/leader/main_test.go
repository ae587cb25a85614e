package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m, main) }

func TestLeader(t *testing.T) {
	for name, addr := range map[string]func(*testing.T) string{
		"the embedded Redis": func(*testing.T) string { return "" },
		"a real Redis":       func(t *testing.T) string { return testserver.StartRedis(t).Addr },
	} {
		t.Run("leaders in turn "+name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, os.Args[0], "-redis", addr(t)).CombinedOutput()
			if err != nil || strings.Count(string(out), " leads after ") != 3 || !strings.Contains(string(out), "is asked to stop") {
				t.Errorf("%v:\n%s", err, out)
			}
		})
	}
}
