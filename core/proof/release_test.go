package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// releasing is a repository with .ci/release, a module at the top level and two nested
// modules.
type releasing struct {
	t   *testing.T
	dir string
	env []string
}

func newReleasing(t *testing.T) *releasing {
	t.Helper()
	for _, program := range []string{"bash", "git", "awk"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	r := &releasing{t: t, dir: t.TempDir()}
	r.env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@localhost")
	script, err := os.ReadFile("../../.ci/release")
	if err != nil {
		t.Fatal(err)
	}
	r.write(".ci/release", string(script))
	r.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A kit.\n")
	r.write("go.mod", "module example.test/kit\n\ngo 1.25.0\n")
	r.write("kit.go", "package kit\n")
	r.write("inside/go.mod", "module example.test/kit/inside\n\ngo 1.25.0\n\nrequire example.test/kit v0.0.0\n\nreplace example.test/kit => ../\n")
	r.write("inside/inside.go", "package inside\n\nfunc Inside() {}\n")
	r.write("examples/one/go.mod", "module example.test/kit/examples/one\n\ngo 1.25.0\n\nrequire (\n\texample.test/kit v0.0.0\n\texample.test/kit/inside v0.0.0\n)\n")
	for _, args := range []string{"init -q -b main", "add -A", "commit -qm First"} {
		r.git(strings.Fields(args)...)
	}
	return r
}

func (r *releasing) write(name, text string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

func (r *releasing) git(args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// release runs the script, with the environment variables env in addition.
func (r *releasing) release(version string, env ...string) (out string, err error) {
	cmd := exec.Command("bash", filepath.Join(r.dir, ".ci/release"), version)
	cmd.Dir, cmd.Env = r.t.TempDir(), append(r.env, env...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// state returns the state that a release changes.
func (r *releasing) state() string {
	return fmt.Sprintf("%s %q %q", r.git("rev-parse", "HEAD"), r.git("tag", "-l"), r.git("status", "--porcelain"))
}

func TestReleaseScript(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.2.3", "v0.1.0-rc.1", "1.0.0-0.3.7-x--y"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := newReleasing(t)
			elsewhere := newReleasing(t)
			work := filepath.Join(t.TempDir(), "go.work")
			if err := os.WriteFile(work, []byte("go 1.25.0\n\nuse ./none\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			before := elsewhere.state()
			out, err := r.release(version, "GIT_DIR="+filepath.Join(elsewhere.dir, ".git"), "GIT_WORK_TREE="+elsewhere.dir, "GOWORK="+work, "CDPATH=/:"+elsewhere.dir)
			tag := "v" + strings.TrimPrefix(version, "v")
			if want := "git push --atomic origin HEAD " + tag + " inside/" + tag; err != nil || !strings.Contains(out, want) {
				t.Fatalf("got %v and %q, want %q", err, out, want)
			}
			if got := strings.Fields(r.git("tag", "--points-at", "HEAD")); len(got) != 2 || r.git("status", "--porcelain") != "" {
				t.Errorf("got the tags %v, want 2, and %q", got, r.git("status", "--porcelain"))
			}
			for _, mod := range []string{"inside/go.mod", "examples/one/go.mod"} {
				if got := r.git("show", "HEAD:"+mod); strings.Contains(got, "v0.0.0") || !strings.Contains(got, "kit "+tag) {
					t.Errorf("got in %s %q, want %s", mod, got, tag)
				}
			}
			if got := r.git("show", "HEAD:CHANGELOG.md"); !strings.Contains(got, "## [Unreleased]\n\n## ["+tag[1:]+"] - 2") {
				t.Errorf("got %q", got)
			}
			if after := elsewhere.state(); after != before {
				t.Errorf("another repository: got %s, want %s", after, before)
			}
		})
	}
}

func TestReleaseScript_Refused(t *testing.T) {
	t.Parallel()
	r := newReleasing(t)
	before := r.state()
	for _, version := range []string{
		"", "1", "1.2", "1.2.3.4", "01.2.3", "1.02.3", "1.2.03", "1.2.3-", "1.2.3-01", "1.2.3-a..b", "1.2.3-a.", "1.2.3-a_b", "1.2.3+meta", "2.0.0", "10.0.0",
		"vv1.2.3", "V1.2.3", "1.2.3 ", "1.2.3\n4", "0.1.0-0.20260102030405-0123456789ab", "1.2.3-é",
	} {
		if out, err := r.release(version); err == nil {
			t.Errorf("%q: got %q, want a refusal", version, out)
			r.git("reset", "-q", "--hard", strings.Fields(before)[0])
		}
	}
	r.write("more", "")
	if out, err := r.release("1.2.3"); err == nil || !strings.Contains(out, "not committed") {
		t.Errorf("with a change: got %v and %q, want a refusal", err, out)
	}
	if err := os.Remove(filepath.Join(r.dir, "more")); err != nil {
		t.Fatal(err)
	}
	if after := r.state(); after != before {
		t.Errorf("got %s, want %s", after, before)
	}
}

// TestReleaseScript_Undone checks that nothing of a release is left if a step fails.
func TestReleaseScript_Undone(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(r *releasing){
		"second tag":     func(r *releasing) { r.git("update-ref", "refs/tags/inside/v1.2.3/x", "HEAD") },
		"refused commit": func(r *releasing) { r.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n") },
		"another heading": func(r *releasing) {
			r.write("CHANGELOG.md", "# Changelog\n\n## [Unreleased] \n\n- A kit.\n")
			r.git("commit", "-qam", "Another heading")
		},
		"go.mod": func(r *releasing) {
			r.write("inside/go.mod", "module example.test/kit/inside\n\nrequire example.test/kit v0.0.0\n\nno directive\n")
			r.git("commit", "-qam", "Another go.mod")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReleasing(t)
			prepare(r)
			before := r.state()
			if out, err := r.release("1.2.3"); err == nil {
				t.Errorf("got %q, want a failure", out)
			}
			if after := r.state(); after != before {
				t.Errorf("got %s, want %s", after, before)
			}
		})
	}
}
