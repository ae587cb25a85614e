package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// script runs a script of .ci in the repository.
func (r *releasing) script(name string) (out string, ok bool) {
	r.t.Helper()
	text, err := os.ReadFile("../../.ci/" + name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(".ci/"+name, string(text))
	cmd := exec.Command("bash", r.dir+"/.ci/"+name)
	cmd.Dir, cmd.Env = r.t.TempDir(), r.env
	b, err := cmd.CombinedOutput()
	return string(b), err == nil
}

func TestLayoutScript(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, file string
		allowed    bool
	}{
		{"listed directory", "core/proof/x.go", true},
		{"listed file", "SECURITY.md", true},
		{"other directory", "pkg/x.go", false},
		{"capital", "ROADMAP.md", false},
		{"dot", ".travis.yml", false},
		{"blank in the name", "core x", false},
		{"not ASCII", "café", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newReleasing(t)
			r.git("rm", "-qr", "kit.go", "inside")
			if out, ok := r.script("layout"); !ok {
				t.Fatalf("test setup: %s", out)
			}
			r.write(c.file, "package x\n")
			if out, ok := r.script("layout"); !ok {
				t.Errorf("got %q for a file that git does not track, want success", out)
			}
			r.git("add", "-A")
			out, ok := r.script("layout")
			if first, _, _ := strings.Cut(c.file, "/"); ok != c.allowed || !ok && !strings.Contains(out, first) {
				t.Errorf("got %v, %q; want %v", ok, out, c.allowed)
			}
		})
	}
}
