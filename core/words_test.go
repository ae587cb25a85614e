package core_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// styleBegins is the commit after which new lines follow the style of CONTRIBUTING.md.
const styleBegins = "141aa89"

// goneWords are words that the style replaces. textFiles are the files whose lines are
// read.
var (
	goneWords = regexp.MustCompile(`(?i)\b(tells?|told|whoever|(has|have|had) ended|but for|giv(e|es|en|ing) back|gave back)([^\w(]|$)`)
	textFiles = []string{"*.go", "*.lua", "*.sql", "*.md", "*.proto", "*.html"}
	quotation = regexp.MustCompile("\"[^\"]*\"|`[^`]*`")
)

// goneIn returns the gone words of a line of a file. A page may quote them.
func goneIn(file, line string) string {
	if filepath.Ext(file) == ".md" {
		line = quotation.ReplaceAllString(line, "")
	}
	return strings.TrimRight(goneWords.FindString(line), " \t.,;:!?)\"`'*_]}|")
}

// ageless returns the part of a line that counts for its age: no spaces, and no
// packages of names that have moved from one to another.
func ageless(line string) string {
	return strings.NewReplacer(" ", "", "\t", "", "core.", "", "store.", "", "adapter.", "").Replace(line)
}

// TestWordsThatAreGone finds gone words in lines that were not there when the style began.
// Lines that have moved since then are old ones.
func TestWordsThatAreGone(t *testing.T) {
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", ".."}, args...)...).Output()
		return string(out), err
	}
	const likely = "tell|told|whoever|ended|but for|back"
	before, err := git(slices.Concat([]string{"grep", "-hIiE", likely, styleBegins, "--"}, textFiles)...)
	if err != nil {
		t.Skipf("the history does not reach back to %s: %v", styleBegins, err)
	}
	old := make(map[string]bool)
	for line := range strings.Lines(before) {
		old[ageless(strings.TrimSpace(line))] = true
	}
	now, err := git(slices.Concat([]string{"grep", "-nIiE", "--untracked", likely, "--", ":!core/words_test.go"}, textFiles)...)
	if err != nil {
		t.Fatal(err)
	}
	for found := range strings.Lines(now) {
		file, rest, _ := strings.Cut(found, ":")
		number, line, _ := strings.Cut(rest, ":")
		line = strings.TrimSpace(line)
		if word := goneIn(file, line); word != "" && !old[ageless(line)] {
			t.Errorf("%s:%s: %q is gone, see Style in CONTRIBUTING.md: %s", file, number, word, line)
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
