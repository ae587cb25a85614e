package grpcmw

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/metadata"

	"github.com/lockkit/lockkit/core"
)

// KeyFunc finds in a call what is to be locked. An error that matches
// core.ErrInvalid is the client's and answered with INVALID_ARGUMENT; an error
// that is a gRPC status is the answer itself; any other is answered with
// INTERNAL, and its text does not go into the answer.
//
// The result is one part of the key, without control characters, or several
// parts with U+001F between them, which is how Join puts them together: parts
// "a" and "b" under the name "order" lock core.Key("order", "a", "b").
//
// It runs before the lock is taken. It gets the incoming context, the full
// method ("/package.Service/Method"), and the request. Of a stream the client of
// which sends many messages there is no request yet: req is nil, and a KeyFunc
// that answers "" without an error is called again with the first message.
type KeyFunc func(ctx context.Context, fullMethod string, req any) (string, error)

// separator stands between the parts of a key. It can be no part's own, since
// control characters are refused.
const separator = "\x1f"

// maxKey is the length of the longest key that a Locker takes, in bytes.
const maxKey = 512

// Metadata takes the key from the call's metadata, in which name has to be
// there once; case does not matter. Values of names that end in "-bin" are
// bytes, and written in hexadecimal. It panics if name is empty.
func Metadata(name string) KeyFunc {
	s := newSource("metadata", strings.ToLower(name))
	binary := strings.HasSuffix(s.name, "-bin")
	return func(ctx context.Context, _ string, _ any) (string, error) {
		if _, ok := ctx.(*probe); ok {
			return "0", nil
		}
		value, err := s.only(metadata.ValueFromIncomingContext(ctx, s.name))
		if err != nil {
			return "", err
		}
		if binary {
			return s.hex([]byte(value))
		}
		return s.check(value)
	}
}

// Join makes one key of several, whose parts cannot run into each other:
// Join(Field("a"), Metadata("b")) under the name "x" locks core.Key("x", a, b).
// It fails as the first of parts that fails. It panics if there are none, or one
// is nil.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 {
		panic("grpcmw: Join without parts")
	}
	parts = append([]KeyFunc(nil), parts...)
	for _, p := range parts {
		if p == nil {
			panic("grpcmw: Join: a part is nil")
		}
	}
	return func(ctx context.Context, fullMethod string, req any) (string, error) {
		values := make([]string, len(parts))
		for i, p := range parts {
			v, err := p(ctx, fullMethod, req)
			if err != nil {
				return "", err
			}
			if v == "" && req == nil {
				return "", errNoMessage
			}
			values[i] = v
		}
		return strings.Join(values, separator), nil
	}
}

// escaped is core.Key for a KeyFunc's result.
func escaped(name, value string) (string, error) {
	if !strings.Contains(value, separator) {
		if _, err := part.check(value); err != nil {
			return "", err
		}
		value = core.Key(name, value)
	} else {
		parts := strings.Split(value, separator)
		for _, p := range parts {
			if _, err := part.check(p); err != nil {
				return "", err
			}
		}
		value = core.Key(name, parts...)
	}
	if len(value) > maxKey {
		return "", part.bad("is too long")
	}
	return value, nil
}

// source is where in the call a value comes from, in words.
type source struct{ kind, name string }

// part is the source of what a KeyFunc answers.
var part = source{kind: "key"}

func newSource(kind, name string) source {
	if name == "" {
		panic("grpcmw: the name of a " + kind + " is empty")
	}
	return source{kind, name}
}

// bad says what is wrong with the value, without the value.
func (s source) bad(fault string) error { return &keyError{s, fault} }

// only is the one of values.
func (s source) only(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", s.bad("is missing")
	case 1:
		if values[0] == "" {
			return "", s.bad("is empty")
		}
		return values[0], nil
	}
	return "", s.bad("is there more than once")
}

// check refuses what cannot be a part of a key.
func (s source) check(value string) (string, error) {
	switch {
	case value == "":
		return "", s.bad("is empty")
	case len(value) > maxKey:
		return "", s.bad("is too long")
	case !utf8.ValidString(value):
		return "", s.bad("is not valid UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		return "", s.bad("contains a control character")
	}
	return value, nil
}

// hex writes bytes in hexadecimal. What is too long is not copied for that.
func (s source) hex(value []byte) (string, error) {
	if len(value) > maxKey/2 {
		return "", s.bad("is too long")
	}
	return s.check(hex.EncodeToString(value))
}

// keyError says why a call has no key that can be locked, in words that may go
// into the answer.
type keyError struct {
	source source
	fault  string
}

func (e *keyError) Error() string { return "grpcmw: " + e.detail() }
func (e *keyError) Unwrap() error { return core.ErrInvalid }

func (e *keyError) detail() string {
	if e.source.name == "" {
		return "the " + e.source.kind + " " + e.fault
	}
	return fmt.Sprintf("the %s %q %s", e.source.kind, e.source.name, e.fault)
}
