// Package visible escapes characters of external texts that a reader cannot see, or
// that control a terminal. These are all characters for which unicode.IsPrint returns
// false. They include control characters, and characters that change the direction of
// writing.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns s with each of these characters in the form \u{202e}, and each byte that
// is not UTF-8 in the form \x{ff}. It also escapes a backslash that could begin such an
// escape. So different texts have different results.
func Text(s string) string {
	var b strings.Builder
	for i, size := 0, 0; i < len(s); i += size {
		var r rune
		r, size = utf8.DecodeRuneInString(s[i:])
		switch rest := s[i:]; {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x{%02x}`, s[i])
		case !unicode.IsPrint(r), strings.HasPrefix(rest, `\u{`), strings.HasPrefix(rest, `\x{`):
			fmt.Fprintf(&b, `\u{%04x}`, r)
		default:
			b.WriteString(s[i : i+size])
		}
	}
	return b.String()
}

// JSON returns a JSON text with each of these characters, except line ends, in the form
// \u202e. The text must not have other white space between its tokens. The JSON value
// is unchanged.
func JSON(text []byte) []byte {
	var b []byte
	for _, r := range string(text) {
		switch {
		case unicode.IsPrint(r) || r == '\n':
			b = utf8.AppendRune(b, r)
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		}
	}
	return b
}
