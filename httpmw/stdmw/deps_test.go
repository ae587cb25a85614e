package stdmw_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestNoFramework checks that a program that only uses net/http links no framework.
func TestNoFramework(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range strings.Lines(string(out)) {
		pkg = strings.TrimSpace(pkg)
		first, _, _ := strings.Cut(pkg, "/")
		kit := strings.HasPrefix(pkg, "github.com/lockkit/lockkit/")
		if strings.Contains(first, ".") && !kit && !strings.HasPrefix(pkg, "golang.org/x/sys/") && !strings.HasPrefix(pkg, "github.com/cenkalti/backoff/") {
			t.Errorf("it comes with %s", pkg)
		}
	}
}
