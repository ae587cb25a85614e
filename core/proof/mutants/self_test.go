package mutants_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun_Verdict(t *testing.T) {
	t.Parallel()
	// A mutant is noticed only by an assertion of its own test.
	t.Run("noticed by its own test", func(t *testing.T) {
		t.Parallel()
		for output, want := range map[string]string{
			"--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/a_case (0.01s)\n":                    "",
			"--- PASS: TestA (0.01s)\n    --- PASS: TestA/a_case (0.01s)\n":                    "nobody notices",
			"--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/a_case_more (0.01s)\n":               "did not run",
			"--- FAIL: TestA (0.01s)\n    --- PASS: TestA/a_case (0.01s)\n":                    "nobody notices",
			"    --- SKIP: TestA/a_case (0.01s)\n":                                             "did not run",
			"testing: warning: no tests to run\nPASS\n":                                        "did not run",
			"--- FAIL: TestA (2m0s)\n    --- FAIL: TestA/a_case (2m0s)\npanic: test timed out": "did not come to its end",
		} {
			err := caught(output, "TestA/a case")
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%q: got %v, want %q", output, err, want)
			}
		}
	})
	// A mutant is stale unless the function that it names has its text exactly once.
	t.Run("stale text", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		for name, text := range map[string]string{
			"a.go":      "package a\n\nconst limit = 1\n\nfunc (s *T[K]) f() { one(two, two) }\n\nfunc twice() {}\n",
			"b.go":      "package a\n\nfunc f() { one() }\n\nfunc twice() {}\n",
			"a_test.go": "package a\n\nfunc f() { one() }\n",
			"a.lua":     "one two two",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for edit, want := range map[string]string{
			"a.lua\none":     "four two two",
			"a.lua\ntwo":     "stale: it: look at a.lua in a.lua: it has the text 2 times",
			"b.lua\none":     "stale: it: look for what became of b.lua",
			".: f\none":      "package a\n\nfunc f() { four() }\n\nfunc twice() {}\n",
			".: T.f\none":    "package a\n\nconst limit = 1\n\nfunc (s *T[K]) f() { four(two, two) }\n\nfunc twice() {}\n",
			".: limit\n1":    "package a\n\nconst limit = four\n\nfunc (s *T[K]) f() { one(two, two) }\n\nfunc twice() {}\n",
			".: T.f\ntwo":    "stale: it: look at .: T.f in ./a.go: it has the text 2 times",
			".: f\ntwo":      "stale: it: look at .: f in ./b.go: it has the text 0 times",
			".: T.g\none":    "stale: it: look for what became of .: T.g: it is not declared there",
			".: twice\nfunc": "stale: it: look for what became of .: twice: it is declared there 2 times",
		} {
			m, err := parse("m", "breaks: it\nhazard: 1\ntest: core: TestA/b c\n\n--- "+edit+"\n+++\nfour\n")
			if err != nil {
				t.Fatal(err)
			}
			changed, err := m.apply(dir)
			got := fmt.Sprint(err)
			for _, text := range changed {
				got = text
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s: got %q, want %q", edit, got, want)
			}
		}
	})
	t.Run("incomplete file", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{
			"", "breaks: it\nhazard: 1\n\n--- a.go\nx\n+++\ny\n", "breaks: it\nhazard: 1\ntest: core: TestA\n",
			"breaks: it\nhazard: 1\ntest: core: TestA\n\n--- a.go\nx\n", "breaks: it\nhazard: 1\ntest: core: TestA\n\n--- a.go\nx\n+++\nx\n",
		} {
			if m, err := parse("m", text); err == nil {
				t.Errorf("%q is read as %+v", text, m)
			}
		}
	})
}

func TestSwitched(t *testing.T) {
	t.Parallel()
	t.Run("copies of functions and files", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		for name, text := range map[string]string{
			"go.mod": "module m\n\ngo 1.26\n",
			"a/a.go": "package a\n\nimport \"embed\"\n\n//go:embed text/*.txt\nvar files embed.FS\n\ntype T[K any] struct{ n int }\n\n" +
				"func (t *T[K]) Add(n ...int) (sum int) { return t.n + len(n) }\n\n" +
				"func One[K any](k K) int { return 1 }\n\n" +
				"func Text() string { text, _ := files.ReadFile(\"text/a.txt\"); return string(text) }\n",
			"a/text/a.txt": "one",
			"a/a_test.go": "package a\n\nimport (\"fmt\"; \"testing\")\n\n" +
				"func TestA(t *testing.T) { fmt.Println((&T[int]{3}).Add(1, 2), One(\"\"), Text()) }\n",
		} {
			name = filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var all []*mutant
		for _, edits := range []string{"a: T.Add\nlen(n)\n+++\nlen(n) * 10", "a: One\n1\n+++\n7\n\n--- a/text/a.txt\none\n+++\ntwo"} {
			m, err := parse("m", "breaks: it\nhazard: 1\ntest: a: TestA\n\n--- "+edits+"\n")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		g := newGroup(dir, t.TempDir(), all)
		for i, want := range []string{"5 1 one", "23 1 one", "5 7 two"} {
			got := g.without
			if i > 0 {
				got = g.run(all[i-1])
			}
			if got.err != nil || !strings.Contains(got.output, "\n"+want+"\n") {
				t.Errorf("mutant %d: got %v %s, want %s", i, got.err, got.output, want)
			}
		}
	})
	t.Run("nearly all mutants", func(t *testing.T) {
		t.Parallel()
		const most = 8 // built alone: each takes as long as ten others
		root, all := mutants(t)
		alone := 0
		for _, m := range all {
			b, err := newSwitched(root, []*mutant{m})
			if err != nil {
				t.Fatal(err)
			}
			if b.numbers[m] == 0 {
				t.Logf("%s is built by itself", m.Name)
				alone++
			}
		}
		if alone > most {
			t.Errorf("got %d mutants that are built by themselves, want at most %d", alone, most)
		}
	})
}
