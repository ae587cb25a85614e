package visible_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core/internal/visible"
)

func TestText(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"":                       "",
		"order:42 é漢🔒":           "order:42 é漢🔒",
		"\x1b[2J\n\t\x7f":        `\u{001b}[2J\u{000a}\u{0009}\u{007f}`,
		"\u009b2J\u202e\u200b":   `\u{009b}2J\u{202e}\u{200b}`,
		"\U000e0041":             `\u{e0041}`,
		"\xff\xc2":               `\x{ff}\x{c2}`,
		`\u{202e}\x{ff}\u \x u{`: `\u{005c}u{202e}\u{005c}x{ff}\u \x u{`,
		"\ufffd":                 "\ufffd",
	} {
		if got := visible.Text(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

// FuzzText checks that different texts have different results, and that all results are
// printable.
func FuzzText(f *testing.F) {
	f.Add("a\x1b]0;title\x07", `a\u{001b}]0;title\u{0007}`)
	f.Add("\u2066\xf0\x9f", `\x{f0}\x{9f}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := visible.Text(a), visible.Text(b)
		if x == y && a != b {
			t.Errorf("%q and %q are both written %q", a, b, x)
		}
		if !utf8.ValidString(x) || strings.ContainsFunc(x, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is written %q", a, x)
		}
		text, err := json.Marshal([]string{a, b})
		if err != nil {
			t.Fatal(err)
		}
		var before, after []string
		shown := visible.JSON(text)
		if json.Unmarshal(text, &before) != nil || json.Unmarshal(shown, &after) != nil || before[0] != after[0] || before[1] != after[1] {
			t.Errorf("%q means %q, and %q means %q", text, before, shown, after)
		}
		if strings.ContainsFunc(string(shown), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is written %q", text, shown)
		}
	})
}
