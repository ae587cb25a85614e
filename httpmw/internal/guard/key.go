package guard

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
)

// KeyFunc finds a key in a request. An error that matches core.ErrInvalid is the
// client's. The result is one part of the key, or several as Join makes them.
type KeyFunc func(x Exchange) (string, error)

// Source finds a value in a request that may be a part of a key.
type Source func(c Carrier) (string, error)

// separator stands between the parts of a key. It can be no part's own, since
// control characters are refused.
const separator = "\x1f"

// maxKey is the length of the longest key that a Locker takes, in bytes.
const maxKey = 512

// Path finds a parameter of the request's route by find, which returns the route
// too, and whether it has the parameter at all.
func Path(name string, find func(c Carrier) (value, route string, ok bool)) Source {
	s := newPlace("path parameter", name)
	return func(c Carrier) (string, error) {
		value, route, ok := find(c)
		if !ok {
			return "", setupError(fmt.Sprintf("httpmw: route %q has no %s", route, s))
		}
		return s.check(value)
	}
}

// Query finds a parameter of the URL's query.
func Query(name string) Source {
	s := newPlace("query parameter", name)
	return func(c Carrier) (string, error) {
		query, err := url.ParseQuery(c.Request().URL.RawQuery)
		if err != nil {
			return "", &keyError{"query is malformed"}
		}
		return s.only(query[name])
	}
}

// Header finds a header.
func Header(name string) Source {
	s := newPlace("header", name)
	if http.CanonicalHeaderKey(name) == "Host" {
		// net/http takes it out of the headers.
		return func(c Carrier) (string, error) { return s.check(c.Request().Host) }
	}
	return func(c Carrier) (string, error) {
		return s.only(c.Request().Header.Values(name))
	}
}

// Join makes one KeyFunc of several, of whatever framework.
func Join[F ~func(C) (string, error), C any](parts []F) F {
	if len(parts) == 0 {
		panic("httpmw: Join without parts")
	}
	parts = append([]F(nil), parts...)
	for _, p := range parts {
		if p == nil {
			panic("httpmw: Join: a part is nil")
		}
	}
	return func(c C) (string, error) {
		values := make([]string, len(parts))
		for i, p := range parts {
			v, err := p(c)
			if err != nil {
				return "", err
			}
			values[i] = v
		}
		return strings.Join(values, separator), nil
	}
}

// lockKey is the key to lock for a KeyFunc's result.
func lockKey(name, value string) (string, error) {
	parts, err := split(value, place{"key"})
	if err != nil {
		return "", err
	}
	key := core.Key(name, parts...)
	if len(key) > maxKey {
		return "", place{"key"}.bad(fmt.Sprintf("is too long, with name and escapes %d bytes are allowed", maxKey))
	}
	return key, nil
}

// split takes a KeyFunc's result apart, which is that of s.
func split(value string, s place) ([]string, error) {
	parts := strings.Split(value, separator)
	for _, p := range parts {
		if _, err := s.check(p); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// place is where in the request a value comes from, in words.
type place struct{ words string }

func newPlace(kind, name string) place {
	if name == "" {
		panic("httpmw: the name of a " + kind + " is empty")
	}
	return place{fmt.Sprintf("%s %q", kind, name)}
}

func (s place) String() string { return s.words }

// bad says what is wrong with the value, without the value.
func (s place) bad(fault string) error { return &keyError{s.words + " " + fault} }

// only is the one of values.
func (s place) only(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", s.bad("is missing")
	case 1:
		return s.check(values[0])
	}
	return "", s.bad("is there more than once")
}

// check refuses what cannot be a part of a key.
func (s place) check(value string) (string, error) {
	switch {
	case value == "":
		return "", s.bad("is empty")
	case len(value) > maxKey:
		return "", s.bad(fmt.Sprintf("is too long, %d bytes are allowed", maxKey))
	case !utf8.ValidString(value):
		return "", s.bad("is not valid UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		return "", s.bad("contains a control character")
	}
	return value, nil
}

// keyError says why a request has no key that can be locked, in words that may
// go into the answer.
type keyError struct{ detail string }

func (e *keyError) Error() string { return "httpmw: " + e.detail }

// sentence is detail for the answer.
func (e *keyError) sentence() string { return strings.ToUpper(e.detail[:1]) + e.detail[1:] + "." }

func (e *keyError) Unwrap() error { return core.ErrInvalid }
