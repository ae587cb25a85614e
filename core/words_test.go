package core_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goneWords matches words that the style of CONTRIBUTING.md replaces.
var (
	goneWords = regexp.MustCompile(`(?i)\b(tells?|told|whoever|(has|have|had) ended|but for|giv(e|es|en|ing) back|gave back)([^\w(]|$)`)
	quotation = regexp.MustCompile("\"[^\"]*\"|`[^`]*`")
)

// goneIn returns the first of goneWords in a line of a file, or "". A .md file may
// quote these words.
func goneIn(file, line string) string {
	if filepath.Ext(file) == ".md" {
		line = quotation.ReplaceAllString(line, "")
	}
	return strings.TrimRight(goneWords.FindString(line), " \t.,;:!?)\"`'*_]}|")
}

// TestWordsThatAreGone finds goneWords in all text files. The statements of an earlier
// version in testdata keep the words of their time.
func TestWordsThatAreGone(t *testing.T) {
	t.Parallel()
	if _, err := exec.Command("git", "-C", "..", "rev-parse").Output(); err != nil {
		t.Skipf("there is no repository: %v", err)
	}
	const likely = "tell|told|whoever|ended|but for|back"
	found, err := exec.Command("git", "-C", "..", "grep", "-nIiE", "--untracked", likely, "--",
		":!core/words_test.go", ":!core/pgstore/testdata/version6").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(found)) {
		file, rest, _ := strings.Cut(line, ":")
		number, text, _ := strings.Cut(rest, ":")
		if word := goneIn(file, text); word != "" {
			t.Errorf("%s:%s: %q is gone, see Style in CONTRIBUTING.md: %s", file, number, word, strings.TrimSpace(text))
		}
	}
}

func TestGoneIn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, line, want string }{
		{"a.go", "// notify tells the observer of e.", "tells"},
		{"a.go", "l.tell(e)", ""},
		{"a.go", `errors.New("its lease has ended")`, "has ended"},
		{"a.go", "// teller counts untold riches.", ""},
		{"a.md", `Release, not "give back".`, ""},
		{"a.md", "Give back what you took.", "Give back"},
		{"a.md", "all but for one", "but for"},
	} {
		if got := goneIn(c.file, c.line); got != c.want {
			t.Errorf("%s: %s: got %q, want %q", c.file, c.line, got, c.want)
		}
	}
}
