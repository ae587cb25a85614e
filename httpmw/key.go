package httpmw

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
)

// KeyFunc finds in a request what is to be locked. An error that matches
// core.ErrInvalid is the client's and answered with 400, any other with 500;
// its text does not go into the answer.
//
// The result is one part of the key, without control characters, or several
// parts with U+001F between them, which is how Join puts them together: parts
// "a" and "b" under the name "order" lock core.Key("order", "a", "b").
//
// It runs before the lock is taken. To read the body in it, use JSON or Form,
// or read c.Request.Body and put back what was read.
type KeyFunc func(c *gin.Context) (string, error)

// separator stands between the parts of a key. It can be no part's own, since
// control characters are refused.
const separator = "\x1f"

// maxKey is the length of the longest key that a Locker takes, in bytes.
const maxKey = 512

// Param takes the key from a path parameter, "id" of "/orders/:id/pay". On a
// route without such a parameter every request is answered with 500, and the
// first of them tells core.Misused; see Check. It panics if name is empty.
func Param(name string) KeyFunc {
	s := newSource("path parameter", name)
	asked.add(name)
	return func(c *gin.Context) (string, error) {
		value, ok := c.Params.Get(name)
		if !ok {
			return "", setupError(fmt.Sprintf("httpmw: route %q has no %s", c.FullPath(), s))
		}
		return s.check(value)
	}
}

// Query takes the key from a parameter of the URL's query. It has to be there
// once, and the query has to be well-formed. It panics if name is empty.
func Query(name string) KeyFunc {
	s := newSource("query parameter", name)
	return func(c *gin.Context) (string, error) {
		query, err := url.ParseQuery(c.Request.URL.RawQuery)
		if err != nil {
			return "", &keyError{"query is malformed"}
		}
		return s.only(query[name])
	}
}

// Header takes the key from a header, which has to be there once. It panics if
// name is empty.
func Header(name string) KeyFunc {
	s := newSource("header", name)
	if http.CanonicalHeaderKey(name) == "Host" {
		// net/http takes it out of the headers.
		return func(c *gin.Context) (string, error) { return s.check(c.Request.Host) }
	}
	return func(c *gin.Context) (string, error) {
		return s.only(c.Request.Header.Values(name))
	}
}

// Join makes one key of several, whose parts cannot run into each other:
// Join(Param("a"), Param("b")) under the name "x" locks core.Key("x", a, b). It
// fails as the first of parts that fails. It panics if there are none, or one is
// nil.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 {
		panic("httpmw: Join without parts")
	}
	parts = append([]KeyFunc(nil), parts...)
	for _, p := range parts {
		if p == nil {
			panic("httpmw: Join: a part is nil")
		}
	}
	return func(c *gin.Context) (string, error) {
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
	parts, err := split(value, source{"key"})
	if err != nil {
		return "", err
	}
	key := core.Key(name, parts...)
	if len(key) > maxKey {
		return "", source{"key"}.bad(fmt.Sprintf("is too long, with name and escapes %d bytes are allowed", maxKey))
	}
	return key, nil
}

// split takes a KeyFunc's result apart, which is that of s.
func split(value string, s source) ([]string, error) {
	parts := strings.Split(value, separator)
	for _, p := range parts {
		if _, err := s.check(p); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// source is where in the request a value comes from, in words.
type source struct{ words string }

func newSource(kind, name string) source {
	if name == "" {
		panic("httpmw: the name of a " + kind + " is empty")
	}
	return source{fmt.Sprintf("%s %q", kind, name)}
}

func (s source) String() string { return s.words }

// bad says what is wrong with the value, without the value.
func (s source) bad(fault string) error { return &keyError{s.words + " " + fault} }

// only is the one of values.
func (s source) only(values []string) (string, error) {
	switch len(values) {
	case 0:
		return "", s.bad("is missing")
	case 1:
		return s.check(values[0])
	}
	return "", s.bad("is there more than once")
}

// check refuses what cannot be a part of a key.
func (s source) check(value string) (string, error) {
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
