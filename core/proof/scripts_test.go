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
		{"capital letters", "ROADMAP.md", false},
		{"leading dot", ".travis.yml", false},
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

// newAPI returns a repository that contains .ci/apitext, a package core with one function
// and a package once, and the committed texts of that API.
func newAPI(t *testing.T) *releasing {
	t.Helper()
	r := newReleasing(t)
	// The program does not depend on its directory, so all cases share one build.
	r.env = append(r.env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath")
	text, err := os.ReadFile("apitext/main.go")
	if err != nil {
		t.Fatal(err)
	}
	r.git("rm", "-qr", "kit.go", "inside", "examples")
	r.write("core/proof/apitext/main.go", string(text))
	r.write("core/once/once.go", "package once\n")
	r.write("core/core.go", "package core\n\nfunc A() {}\n")
	r.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- `core`: `A`\n  and nothing else.\n- `core/once`: empty.\n")
	r.write(".ci/api/core.txt", "")
	if out, ok := r.script("apitext"); ok || !strings.Contains(out, "func A()") {
		t.Fatalf("got %q, want the new function", out)
	}
	cmd := exec.Command("bash", r.dir+"/.ci/apitext", "write")
	cmd.Env = r.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.git("add", "-A")
	r.git("commit", "-qm", "Add the texts")
	return r
}

func TestAPITextScript(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, changelog string
		allowed         bool
	}{
		{"no entry", "", false},
		{"entry of another package", "- `core/leader`: more.\n", false},
		{"entry without backquotes", "- core: `B`.\n", false},
		{"entry of the package", "- `core`: `B`.\n", true},
		{"name with its package", "- `core/leader`: takes a `core.B`.\n", true},
		{"entry on two lines", "- `core/leader` and\n  `core`: more.\n", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newAPI(t)
			old, err := os.ReadFile(r.dir + "/CHANGELOG.md")
			if err != nil {
				t.Fatal(err)
			}
			r.write("CHANGELOG.md", string(old)+c.changelog)
			r.write("core/core.go", "package core\n\nfunc A() {}\n\nfunc B() {}\n")
			r.write(".ci/api/core.txt", "func A()\nfunc B()\n")
			r.git("add", "-A")
			r.git("commit", "-qm", "Add B")
			r.write("x.txt", "")
			r.git("add", "-A")
			r.git("commit", "-qm", "Add a file")
			if out, ok := r.script("apitext"); ok != c.allowed || !ok && !strings.Contains(out, "API of core,") {
				t.Errorf("got %v, %q; want %v", ok, out, c.allowed)
			}
		})
	}
	t.Run("changed second line", func(t *testing.T) {
		t.Parallel()
		r := newAPI(t)
		old, err := os.ReadFile(r.dir + "/CHANGELOG.md")
		if err != nil {
			t.Fatal(err)
		}
		r.write("CHANGELOG.md", strings.Replace(string(old), "nothing else", "`B`", 1))
		r.write("core/core.go", "package core\n\nfunc A() {}\n\nfunc B() {}\n")
		r.write(".ci/api/core.txt", "func A()\nfunc B()\n")
		r.git("add", "-A")
		r.git("commit", "-qm", "Add B")
		if out, ok := r.script("apitext"); !ok {
			t.Errorf("got %q, want success", out)
		}
	})
}
