// Package keys is for adapters, the kit's and others: it makes keys of values that come
// from outside, in requests, calls, tasks or messages.
//
// An adapter finds a value, and its Source refuses it if it cannot be part of a key.
// Join puts the parts of several sources together, and Source.Key makes the key of them
// that core.Key makes. What is refused fails with an Error, which names the place and
// never the value, so that it can be shown.
package keys

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
)

// maxKey is the length of the longest key that a Locker takes, in bytes.
const maxKey = 512

// Source is a place from which an adapter takes values, in words that may be shown. It
// has no state.
type Source struct {
	Adapter string // "httpmw", at the beginning of errors and panics
	Kind    string // "header"
	Name    string // "X-Order"; empty where there is only one of the kind
}

// NewSource makes a Source whose name is given by the program. It panics if name is empty.
func NewSource(adapter, kind, name string) Source {
	if name == "" {
		panic(adapter + ": the name of a " + kind + " is empty")
	}
	return Source{adapter, kind, name}
}

// String is kind and name: header "X-Order".
func (s Source) String() string {
	if s.Name == "" {
		return s.Kind
	}
	return fmt.Sprintf("%s %q", s.Kind, s.Name)
}

// missing is the fault of a value that is not there at all.
const missing = "is missing"

// Bad is an *Error of s. The fault is a predicate without the value: "is missing".
func (s Source) Bad(fault string) error { return &Error{s, fault} }

// Only returns the one of values. It fails with an *Error if there are none or several,
// even equal ones: which one counts would be for each reader to decide.
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

// Error says why a value cannot be a key or a part of one. It matches core.ErrInvalid.
// The adapters of the kit put its Detail into their answers.
type Error struct {
	Source Source
	Fault  string
}

func (e *Error) Error() string { return e.Source.Adapter + ": " + e.Detail() }

// Detail is the error without the adapter: the header "X-Order" is missing.
func (e *Error) Detail() string { return "the " + e.Source.String() + " " + e.Fault }

// IsMissing reports whether there is no such value, in contrast to one that is empty or not
// allowed.
func (e *Error) IsMissing() bool { return e.Fault == missing }

func (e *Error) Unwrap() error { return core.ErrInvalid }
