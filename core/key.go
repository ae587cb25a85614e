package core

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxKey = 512 // bytes

var escapePart = strings.NewReplacer("%", "%25", ":", "%3A", "{", "%7B", "}", "%7D")

// Key joins a static name and its variable parts into a key, "order" and "42"
// into "order:42". In the parts, ':', '%' and braces are percent-escaped, so
// that no two lists of parts give the same key. All adapters build their keys
// with it: code that calls a Locker directly can lock what a middleware locks.
func Key(name string, parts ...string) string {
	if len(parts) == 0 {
		return name
	}
	n := len(name)
	for _, p := range parts {
		n += 1 + len(p)
	}
	var b strings.Builder
	b.Grow(n)
	b.WriteString(name)
	for _, p := range parts {
		b.WriteByte(':')
		if strings.ContainsAny(p, "%:{}") {
			p = escapePart.Replace(p)
		}
		b.WriteString(p)
	}
	return b.String()
}

// checkKey refuses what could not be a key everywhere. Braces choose the slot
// in a Redis Cluster; the store puts its own.
func checkKey(key string) error {
	switch {
	case key == "":
		return errors.New("key is empty")
	case len(key) > maxKey:
		return fmt.Errorf("key has %d bytes, at most %d are allowed", len(key), maxKey)
	case !utf8.ValidString(key):
		return errors.New("key is not valid UTF-8")
	}
	for _, r := range key {
		switch {
		case r == '{' || r == '}':
			return errors.New("key contains a brace, use core.Key to escape it")
		case unicode.IsControl(r):
			return fmt.Errorf("key contains control character %U", r)
		}
	}
	return nil
}
