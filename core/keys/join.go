package keys

import (
	"fmt"
	"strings"

	"github.com/lockkit/lockkit/core"
)

// separator stands between the parts of a joined value. It can be no part's own, since
// control characters are refused.
const separator = "\x1f"

// Join asks each of sources for a value with ask, and returns the values with U+001F
// between them. It fails as the first that fails.
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

// Parts takes apart what Join put together; a value of one source is one part. Each has
// to be as Part wants it.
func (s Source) Parts(joined string) ([]string, error) { return s.split(nil, joined) }

// split appends the parts to those.
func (s Source) split(parts []string, joined string) ([]string, error) {
	for p := range strings.SplitSeq(joined, separator) {
		if _, err := s.Part(p); err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// Key returns core.Key(name, parts...) with the Parts of joined. It fails with an *Error
// if one of them is bad, or the key has more than 512 bytes.
func (s Source) Key(name, joined string) (string, error) {
	var few [4]string // so that most keys need no memory for their parts
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
