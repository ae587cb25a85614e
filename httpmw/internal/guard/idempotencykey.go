package guard

import (
	"fmt"
	"net/http"
	"strings"
)

// idempotencyHeader is the header of draft-ietf-httpapi-idempotency-key-header.
const idempotencyHeader = "Idempotency-Key"

// maxIdempotencyKey is the length of the longest key, in bytes.
const maxIdempotencyKey = 255

// IdempotencyKey is the key that a request names: a Structured Field string
// (RFC 9651, section 3.3.3), or the same without quotes, as most clients send it.
func IdempotencyKey(h http.Header) (string, error) {
	s := place{idempotencyHeader + " header"}
	lines := h[idempotencyHeader]
	switch len(lines) {
	case 0:
		return "", s.bad("is missing")
	case 1:
	default:
		return "", s.bad("is there more than once")
	}
	value := strings.Trim(lines[0], " \t")
	if strings.HasPrefix(value, `"`) {
		inner, ok := unquote(value)
		if !ok {
			return "", s.bad("is not one quoted string without parameters")
		}
		value = inner
	} else if strings.ContainsAny(value, `",;`) {
		return "", s.bad("is not one key: quote it")
	}
	return s.visible(value)
}

// visible refuses what is not 1 to 255 visible ASCII characters.
func (s place) visible(value string) (string, error) {
	switch {
	case value == "":
		return "", s.bad("is empty")
	case len(value) > maxIdempotencyKey:
		return "", s.bad(fmt.Sprintf("is too long, %d bytes are allowed", maxIdempotencyKey))
	}
	for i := range len(value) {
		if value[i] <= ' ' || value[i] > '~' {
			return "", s.bad("contains something other than visible ASCII")
		}
	}
	return value, nil
}

// unquote reads a Structured Field string that is all of s.
func unquote(s string) (string, bool) {
	body := s[1:]
	if end := strings.IndexAny(body, `"\`); end >= 0 && body[end] == '"' {
		return body[:end], end == len(body)-1
	}
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		c := body[i]
		if c == '"' {
			return b.String(), i == len(body)-1
		}
		if c == '\\' {
			i++
			if i == len(body) || body[i] != '"' && body[i] != '\\' {
				return "", false
			}
			c = body[i]
		}
		b.WriteByte(c)
	}
	return "", false
}
