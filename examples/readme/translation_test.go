package readme

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTranslation compares the form of README.zh-CN.md with that of README.md, such as
// the code, the headings and the links. It cannot compare prose, so it logs the commits
// that changed README.md after the last change of the translation.
func TestTranslation(t *testing.T) {
	t.Parallel()
	english, chinese := read(t, "README.md"), read(t, "README.zh-CN.md")
	for what, of := range map[string]*regexp.Regexp{
		"code blocks":          regexp.MustCompile("(?s)```.*?```"),
		"levels of headings":   regexp.MustCompile(`(?m)^#+ `),
		"links":                regexp.MustCompile(`\]\(([^#)][^)]*)\)`),
		"numbers of versions":  regexp.MustCompile(`\b[0-9]+\.[0-9]+(\.[0-9]+)?\b`),
		"rows of tables":       regexp.MustCompile(`(?m)^\|`),
		"names in backquotes":  regexp.MustCompile("`[^`\n]+`"),
		"items and paragraphs": regexp.MustCompile(`(?m)^- `),
	} {
		want, got := of.FindAllString(english, -1), of.FindAllString(chinese, -1)
		if what == "links" {
			got = slices.DeleteFunc(got, func(l string) bool { return l == "](README.md)" })
			want = slices.DeleteFunc(want, func(l string) bool { return l == "](README.zh-CN.md)" })
		}
		// A translated sentence can have its links and names in another order.
		if what != "code blocks" {
			slices.Sort(want)
			slices.Sort(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	last, err := exec.CommandContext(t.Context(), "git", "-C", root, "log", "-1", "--format=%H", "--", "README.zh-CN.md").Output()
	if err != nil || len(last) == 0 {
		t.Skip("there is no history to look at")
	}
	since, err := exec.CommandContext(t.Context(), "git", "-C", root, "log", "--format=%h %s", strings.TrimSpace(string(last))+"..", "--", "README.md").Output()
	if err == nil && len(since) > 0 {
		t.Logf("README.md has changed since README.zh-CN.md:\n%s", since)
	}
}
