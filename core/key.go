package core

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxKey = 512 // bytes

// Key joins a static name and its variable parts into a key: "order" and "42" give
// "order:42". In the parts, ':', '%', braces, control characters and bytes that are not
// UTF-8 are percent-escaped. So under one name, no two lists of parts give the same
// key, and every string can be a part. If name is a valid key, the result is a valid
// key unless it has more than 512 bytes. All adapters build their keys with Key, so
// code that calls a Locker directly can lock the same keys as a middleware.
func Key(name string, parts ...string) string {
	n := len(name)
	for _, p := range parts {
		n += 1 + len(p)
	}
	var b strings.Builder
	b.Grow(n)
	b.WriteString(name)
	for _, p := range parts {
		b.WriteByte(':')
		writePart(&b, p)
	}
	return b.String()
}

func writePart(b *strings.Builder, p string) {
	for len(p) > 0 {
		c, size := utf8.DecodeRuneInString(p)
		invalid := c == utf8.RuneError && size == 1
		if invalid || unicode.IsControl(c) || c == ':' || c == '%' || c == '{' || c == '}' {
			for _, raw := range []byte(p[:size]) {
				b.WriteString(fmt.Sprintf("%%%02X", raw))
			}
		} else {
			b.WriteString(p[:size])
		}
		p = p[size:]
	}
}

// checkKey returns an error for a key that is not allowed. A key may contain braces
// only if braces is true (store.Braced), because braces choose the key's slot in a
// Redis Cluster.
func checkKey(key string, braces bool) error {
	switch {
	case key == "":
		return errors.New("key is empty")
	case len(key) > maxKey:
		return fmt.Errorf("key has %d bytes (at most %d)", len(key), maxKey)
	case !utf8.ValidString(key):
		return errors.New("key is not valid UTF-8")
	case !braces && strings.ContainsAny(key, "{}"):
		return errors.New("key contains a brace, use core.Key to escape it")
	}
	if i := strings.IndexFunc(key, unicode.IsControl); i >= 0 {
		return fmt.Errorf("key contains control character %U", []rune(key[i:])[0])
	}
	return nil
}
