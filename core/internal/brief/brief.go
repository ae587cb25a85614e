// Package brief limits how much of a text from outside an error shows.
package brief

import (
	"fmt"
	"unicode/utf8"
)

// most is the number of bytes of such a text that are shown.
const most = 200

// Error returns err, with its text cut if that is longer than 200 bytes. The result
// matches everything that err matches.
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

// Text returns s, or its first 200 bytes and the number of the others. A rune is not
// cut in two.
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
