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

// goneWords matches words that the style replaces. textFiles has the patterns of the
// files that are checked.
var (
	goneWords = regexp.MustCompile(`(?i)\b(tells?|told|whoever|(has|have|had) ended|but for|giv(e|es|en|ing) back|gave back)([^\w(]|$)`)
	textFiles = []string{"*.go", "*.lua", "*.sql", "*.md", "*.proto", "*.html"}
	quotation = regexp.MustCompile("\"[^\"]*\"|`[^`]*`")
)

// goneIn returns the first of goneWords in a line of a file, or "". A .md file may
// quote them.
func goneIn(file, line string) string {
	if filepath.Ext(file) == ".md" {
		line = quotation.ReplaceAllString(line, "")
	}
	return strings.TrimRight(goneWords.FindString(line), " \t.,;:!?)\"`'*_]}|")
}

// ageless returns line without spaces and package names. Lines that are equal in this
// form have the same age, even if a name has moved to another package.
func ageless(line string) string {
	return strings.NewReplacer(" ", "", "\t", "", "core.", "", "store.", "", "adapter.", "").Replace(line)
}

// TestWordsThatAreGone finds goneWords in lines that did not exist when the style
// began. Lines that have only moved since then count as old.
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
