package keys

import (
	"fmt"
	"strings"

	"github.com/lockkit/lockkit/core"
)

// separator separates the parts of a joined value. A part cannot contain it, because
// Part refuses control characters.
const separator = "\x1f"

// Join calls ask for each source, and returns the values joined with U+001F. It fails
// with the first error of ask.
func Join[S any](sources []S, ask func(S) (string, error)) (string, error) {
	values := make([]string, len(sources))
	for i, s := range sources {
		var err error
		if values[i], err = ask(s); err != nil {
			return "", err
		}
	}
	return strings.Join(values, separator), nil
}

// Parts splits a value that Join has joined. The value of a single source is one part.
// Parts fails with an *Error if Part refuses one of the parts.
func (s Source) Parts(joined string) ([]string, error) { return s.split(nil, joined) }

// split appends the parts of joined to parts.
func (s Source) split(parts []string, joined string) ([]string, error) {
	for p := range strings.SplitSeq(joined, separator) {
		if _, err := s.Part(p); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// Key returns core.Key(name, parts...) with the Parts of joined. It fails with an
// *Error if Part refuses one of the parts, or if the key has more than 512 bytes.
func (s Source) Key(name, joined string) (string, error) {
	var few [4]string // so that the parts of most keys need no allocation
	parts, err := s.split(few[:0], joined)
	if err != nil {
		return "", err
	}
	key := core.Key(name, parts...)
	if len(key) > maxKey {
		return "", s.Bad(fmt.Sprintf("is too long, with name and escapes %d bytes are allowed", maxKey))
	}
	return key, nil
}
