package keys

import (
	"fmt"
	"strings"
)

// maxIdempotencyKey is the maximum length of an idempotency key, in bytes.
const maxIdempotencyKey = 255

// IdempotencyKey returns the key in a header value: a Structured Field string (RFC
// 9651, section 3.3.3), or the same text without quotes, which most clients send. It
// fails with an *Error if the key is not 1 to 255 visible ASCII characters. A quoted
// key may also contain spaces. A key without quotes may not contain quotes, commas or
// semicolons.
func (s Source) IdempotencyKey(value string) (string, error) {
	first := '!' // the first allowed character
	if strings.HasPrefix(value, `"`) {
		first = ' '
		inner, ok := unquote(value)
		if !ok {
			return "", s.Bad("is not one quoted string without parameters")
		}
		value = inner
	} else if strings.ContainsAny(value, `",;`) {
		return "", s.Bad("is not one key: quote it")
	}
	switch {
	case value == "":
		return "", s.Bad("is empty")
	case len(value) > maxIdempotencyKey:
		return "", s.Bad(fmt.Sprintf("is too long, %d bytes are allowed", maxIdempotencyKey))
	case strings.ContainsFunc(value, func(r rune) bool { return r < first || r > '~' }):
		return "", s.Bad("contains something other than visible ASCII")
	}
	return value, nil
}

// unquote returns the value of the Structured Field string s, which begins with a
// quote. It returns false if s is not exactly one such string.
func unquote(s string) (string, bool) {
	body := s[1:]
	if end := strings.IndexAny(body, `"\`); end >= 0 && body[end] == '"' {
		return body[:end], end == len(body)-1
	}
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case '"':
			return b.String(), i == len(body)-1
		case '\\':
			i++
			if i == len(body) || body[i] != '"' && body[i] != '\\' {
				return "", false
			}
		}
		b.WriteByte(body[i])
	}
	return "", false
}
