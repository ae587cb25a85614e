// Package brief limits the length of external texts in errors.
package brief

import (
	"fmt"
	"unicode/utf8"
)

// most is the maximum number of bytes that are shown of an external text.
const most = 200

// Error returns err with its text cut to 200 bytes, if it is longer. The result matches
// everything that err matches.
func Error(err error) error {
	if err == nil || len(err.Error()) <= most {
		return err
	}
	return &cut{Text(err.Error()), err}
}

type cut struct {
	text string
	err  error
}

func (c *cut) Error() string { return c.text }

func (c *cut) Unwrap() error { return c.err }

// Text returns s if it has at most 200 bytes. Otherwise it returns the first bytes of
// s, at most 200, and the number of the remaining bytes. It does not cut a rune in two.
func Text(s string) string {
	if len(s) <= most {
		return s
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s… (%d bytes more)", s[:end], len(s)-end)
}
