package claims_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/store"
)

// TestCheck checks that each fault is refused by the operations that use the faulty
// field, and by no other operation.
func TestCheck(t *testing.T) {
	t.Parallel()
	ops := []string{"acquire", "extend", "release", "watch"}
	tooMany := math.MaxInt32
	tooMany++ // negative if an int has 32 bits
	for _, c := range []struct {
		what    string
		of      func(c *store.Claim)
		refused string // the first letters of the operations
		want    error
		text    string
	}{
		{"nothing", func(*store.Claim) {}, "", nil, ""},
		{"no key", func(c *store.Claim) { c.Key = "" }, "aerw", store.ErrInvalid, "1 to 512 bytes"},
		{"a key of 513 bytes", func(c *store.Claim) { c.Key = strings.Repeat("k", 513) }, "aerw", store.ErrInvalid, "512 bytes"},
		{"a key of 512 bytes", func(c *store.Claim) { c.Key = strings.Repeat("é", 256) }, "", nil, ""},
		{"a key that is not UTF-8", func(c *store.Claim) { c.Key = "a\xff" }, "aerw", store.ErrInvalid, "UTF-8"},
		{"a key with a control character", func(c *store.Claim) { c.Key = "a\u0085" }, "aerw", store.ErrInvalid, "printable"},
		{"a key with a brace", func(c *store.Claim) { c.Key = "a}" }, "aerw", store.ErrInvalid, "brace"},
		{"no lease", func(c *store.Claim) { c.Lease = "" }, "aerw", store.ErrInvalid, "lease"},
		{"no owner", func(c *store.Claim) { c.Owner = "" }, "aerw", store.ErrInvalid, "owner"},
		{"a TTL below 1ms", func(c *store.Claim) { c.TTL = time.Millisecond - 1 }, "ae", store.ErrInvalid, "TTL"},
		{"no weight", func(c *store.Claim) { c.Weight = 0 }, "a", store.ErrInvalid, "weight"},
		{"more weight than the limit", func(c *store.Claim) { c.Weight, c.Limit = 3, 2 }, "a", store.ErrInvalid, "weight"},
		{"a limit above all", func(c *store.Claim) { c.Limit = store.All + 1 }, "a", store.ErrInvalid, "limit"},
		{"the highest token", func(c *store.Claim) { c.MinToken = 1 << 52 }, "", nil, ""},
		{"a token above that", func(c *store.Claim) { c.MinToken = 1<<52 + 1 }, "a", store.ErrInvalid, "2^52"},
		{"a token of a reader", func(c *store.Claim) { c.Weight, c.MinToken = 1, 1 }, "a", store.ErrUnsupported, "not exclusive"},
		{"a record kept for nothing", func(c *store.Claim) { c.Record = &store.Record{} }, "a", store.ErrInvalid, "at least 1 ms"},
		{"a record kept for less", func(c *store.Claim) { c.Record = &store.Record{Retain: -1} }, "ar", store.ErrInvalid, "at least 1 ms"},
		{"record above 64 MiB", func(c *store.Claim) {
			c.Record = &store.Record{Retain: time.Hour, Value: make([]byte, 64<<20+1)}
		}, "ar", store.ErrInvalid, "64 MiB"},
		{"the most attempts", func(c *store.Claim) { c.Record = &store.Record{Retain: time.Hour, Attempt: math.MaxInt32} }, "", nil, ""},
		{"too many attempts", func(c *store.Claim) { c.Record = &store.Record{Retain: time.Hour, Attempt: tooMany} }, "r", store.ErrInvalid, "2^31-1"},
		{"fewer than no attempts", func(c *store.Claim) { c.Record = &store.Record{Retain: time.Hour, Attempt: -1} }, "r", store.ErrInvalid, "attempts"},
	} {
		for _, op := range ops {
			claim := store.Claim{Key: "order:42", Owner: "o", Lease: "l", Weight: store.All, Limit: store.All, TTL: time.Second}
			c.of(&claim)
			err := claims.Check("store", op, &claim, false)
			if !strings.Contains(c.refused, op[:1]) {
				if err != nil {
					t.Errorf("%s of a claim with %s: got %v, want nil", op, c.what, err)
				}
				continue
			}
			if !errors.Is(err, c.want) || !strings.HasPrefix(err.Error(), "store: "+op+": ") || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s of a claim with %s: got %v, want %v about %q", op, c.what, err, c.want, c.text)
			}
		}
	}
}

func TestCheckKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key    string
		braces bool
		ok     bool
	}{{"order:42", false, true}, {"{a}", true, true}, {"{a}", false, false}, {"", true, false}, {"\x7f", true, false}} {
		err := claims.CheckKey("store: look", c.key, c.braces)
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, store.ErrInvalid) || !strings.HasPrefix(err.Error(), "store: look: key ")) {
			t.Errorf("%q, braces %v: got %v", c.key, c.braces, err)
		}
	}
}
