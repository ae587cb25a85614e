package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m, main) }

func TestStdlib(t *testing.T) {
	t.Parallel()
	for where, args := range map[string]func(t *testing.T) []string{
		"embedded Redis": func(*testing.T) []string { return nil },
		"real Redis":     func(t *testing.T) []string { return []string{"-redis", testserver.StartRedis(t).Addr} },
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), os.Args[0], args(t)...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "20 clicks: 1 charged, ") || !strings.Contains(string(out), "asked again: 201 receipt 1 for order:") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	t.Run("it needs no framework", func(t *testing.T) {
		t.Parallel()
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, framework := range []string{"gin-gonic", "google.golang.org/grpc", "hibiken/asynq", "go-chi", "labstack", "gofiber"} {
			if strings.Contains(string(out), framework) {
				t.Errorf("it comes with %s", framework)
			}
		}
	})
}
