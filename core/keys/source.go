// Package keys makes keys from values in requests, calls, tasks or messages. It is for
// the adapters of the kit and for other adapters.
//
// An adapter finds a value in a request, and its Source refuses a value that cannot be
// part of a key. Join joins the values of several sources. Source.Key makes a key from
// the joined values. For a refused value the functions return an *Error. The text of an
// Error names the source and never the value, so it can be shown to anyone.
package keys

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
)

// maxKey is the maximum length of a key that a Locker accepts, in bytes.
const maxKey = 512

// Source describes the part of a request, call, task or message from which an adapter
// takes values. The description can be shown to anyone. A Source has no state.
type Source struct {
	Adapter string // such as "httpmw"; errors and panics begin with it
	Kind    string // such as "header"
	Name    string // such as "X-Order"; empty if there is only one source of the kind
}

// NewSource returns a Source with a name that the program has chosen. It panics if name
// is empty.
func NewSource(adapter, kind, name string) Source {
	if name == "" {
		panic(adapter + ": the name of a " + kind + " is empty")
	}
	return Source{adapter, kind, name}
}

// String returns the kind and the name: header "X-Order".
func (s Source) String() string {
	if s.Name == "" {
		return s.Kind
	}
	return fmt.Sprintf("%s %q", s.Kind, s.Name)
}

// missing is the fault of a value that does not exist.
const missing = "is missing"

// Bad returns an *Error of s. The fault is a predicate without the value, such as "is
// missing".
func (s Source) Bad(fault string) error { return &Error{s, fault} }

// Only returns the single value in values. It fails with an *Error if values is empty.
// It also fails for several values, even if they are equal. Programs choose different
// ones of several values.
func (s Source) Only(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", s.Bad(missing)
	case 1:
		return values[0], nil
	}
	return "", s.Bad("is there more than once")
}

// Part returns value if it can be a part of a key: 1 to 512 bytes of UTF-8 without
// control characters. Otherwise it fails with an *Error.
func (s Source) Part(value string) (string, error) {
	switch {
	case value == "":
		return "", s.Bad("is empty")
	case len(value) > maxKey:
		return "", s.Bad(fmt.Sprintf("is too long, %d bytes are allowed", maxKey))
	case !utf8.ValidString(value):
		return "", s.Bad("is not valid UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		return "", s.Bad("contains a control character")
	}
	return value, nil
}

// Error has the reason for which a value cannot be a key or a part of a key. It matches
// core.ErrInvalid. The adapters of the kit put its Detail into their responses.
type Error struct {
	Source Source
	Fault  string
}

func (e *Error) Error() string { return e.Source.Adapter + ": " + e.Detail() }

// Detail returns the text of the error without the adapter: the header "X-Order" is
// missing.
func (e *Error) Detail() string { return "the " + e.Source.String() + " " + e.Fault }

// IsMissing reports whether the value does not exist. It returns false for a value that
// is empty or not allowed.
func (e *Error) IsMissing() bool { return e.Fault == missing }

func (e *Error) Unwrap() error { return core.ErrInvalid }
