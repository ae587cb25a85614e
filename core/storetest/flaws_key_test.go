package storetest_test

import (
	"context"
	"strings"

	"github.com/lockkit/lockkit/core/store"
)

// keyFlaws lists flaws of stores that refuse keys, or confuse two keys.
var keyFlaws = []flaw{
	{"ignores case in keys", []string{
		"keys/keys that look alike",
	}, withKeys(strings.ToLower)},
	{"trims keys", []string{
		"keys/keys that look alike",
	}, withKeys(strings.TrimSpace)},
	{"takes braces for the key", []string{
		"keys/key with braces",
	}, withKeys(func(key string) string {
		if from, to := strings.Index(key, "{"), strings.Index(key, "}"); from >= 0 && to > from+1 {
			return key[from+1 : to]
		}
		return key
	})},
	{"cuts long keys", []string{
		"keys/keys that look alike",
	}, withKeys(func(key string) string { return key[:min(len(key), 255)] })},
	{"takes a star for all keys", []string{
		"keys/release of one key of two",
		"keys/owner of another key",
		"keys/one lease under two keys",
		"records/record belongs to one key",
	}, withKeys(func(string) string { return "*" })},
	{"refuses quotes in a key", []string{
		"keys/key with quotes",
		"keys/keys that look alike",
	}, refusingKeys("'")},
	{"refuses slashes in a key", []string{"keys/key with slashes"}, refusingKeys("/")},
	{"refuses spaces in a key", []string{"keys/key with spaces"}, refusingKeys(" ")},
	{"refuses colons in a key", []string{"keys/key with colons"}, refusingKeys("::")},
	{"takes a key for a format", []string{"keys/key with percent signs", "keys/key with escapes of core.Key"}, refusingKeys("%")},
	{"takes a key for an escape", []string{"keys/key with backslashes"}, refusingKeys(`\`)},
	{"takes a key for a pattern", []string{"keys/key with glob characters"}, refusingKeys("[")},
	{"has room for ASCII only", []string{
		"keys/key with accents and emoji",
		"keys/key with letters of both directions",
	}, refusingKeys("ä", "\u05d0")},
	{"takes an accent for a letter", []string{"keys/key with a combining accent"}, refusingKeys("\u0301")},
	{"splits keys", []string{"keys/key with hash signs and commas"}, refusingKeys(",")},
	{"refuses the longest keys", []string{
		"keys/key with 512 bytes",
	}, refusingKeys(strings.Repeat("x", 256))},
}

// withKeys returns a flaw: the store applies change to every key.
func withKeys(change func(key string) string) func(s *tampered) {
	return func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			c.Key = change(c.Key)
			return s.Store.Acquire(ctx, c)
		}
		s.extend = extendEach(func(ctx context.Context, c store.Claim) error {
			c.Key = change(c.Key)
			return s.extendSound(ctx, c)
		})
		s.release = func(ctx context.Context, c store.Claim) error {
			c.Key = change(c.Key)
			return s.Store.Release(ctx, c)
		}
		s.watch = func(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
			c.Key = change(c.Key)
			return s.Store.Watch(ctx, c)
		}
	}
}

// refusingKeys returns a flaw: Acquire fails for keys that contain one of parts.
func refusingKeys(parts ...string) func(s *tampered) {
	return func(s *tampered) {
		s.acquire = func(ctx context.Context, c store.Claim) (store.Grant, error) {
			for _, p := range parts {
				if strings.Contains(c.Key, p) {
					return store.Grant{}, store.ErrInvalid
				}
			}
			return s.Store.Acquire(ctx, c)
		}
	}
}
