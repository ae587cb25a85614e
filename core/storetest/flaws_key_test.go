package storetest_test

import (
	"context"
	"strings"

	"github.com/lockkit/lockkit/core/store"
)

// keyFlaws lists flaws of stores that refuse keys, or confuse two keys.
var keyFlaws = []flaw{
	{"ignores case in keys", []string{
		"keys/keys that look alike are different keys",
	}, withKeys(strings.ToLower)},
	{"trims keys", []string{
		"keys/keys that look alike are different keys",
	}, withKeys(strings.TrimSpace)},
	{"takes what is in braces for the key", []string{
		"keys/a key may have braces if the store says so",
	}, withKeys(func(key string) string {
		if from, to := strings.Index(key, "{"), strings.Index(key, "}"); from >= 0 && to > from+1 {
			return key[from+1 : to]
		}
		return key
	})},
	{"cuts long keys", []string{
		"keys/keys that look alike are different keys",
	}, withKeys(func(key string) string { return key[:min(len(key), 255)] })},
	{"takes a star for all keys", []string{
		"keys/a release of one key leaves the others alone",
		"keys/an owner of one key is a stranger to another",
		"keys/one lease under two keys is two holds",
		"records/a record belongs to one key",
	}, withKeys(func(string) string { return "*" })},
	{"cannot have quotes in a key", []string{
		"keys/a key may have quotes",
		"keys/keys that look alike are different keys",
	}, refusingKeys("'")},
	{"cannot have a slash in a key", []string{"keys/a key may have slashes"}, refusingKeys("/")},
	{"cannot have a space in a key", []string{"keys/a key may have spaces"}, refusingKeys(" ")},
	{"cannot have two colons in a key", []string{"keys/a key may have colons"}, refusingKeys("::")},
	{"takes a key for a format", []string{"keys/a key may have percent signs", "keys/a key may have what core.Key has escaped"}, refusingKeys("%")},
	{"takes a key for an escape", []string{"keys/a key may have backslashes"}, refusingKeys(`\`)},
	{"takes a key for a pattern", []string{"keys/a key may have glob characters"}, refusingKeys("[")},
	{"has room for ASCII only", []string{
		"keys/a key may have accents and emoji",
		"keys/a key may have letters of both directions",
	}, refusingKeys("ä", "\u05d0")},
	{"takes an accent for a letter", []string{"keys/a key may have an unusual form of the same word"}, refusingKeys("\u0301")},
	{"splits keys", []string{"keys/a key may have hash signs, commas and dots"}, refusingKeys(",")},
	{"has no room for the longest keys", []string{
		"keys/a key may have the length of 512 bytes",
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
