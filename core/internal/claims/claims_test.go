package claims_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/claims"
)

// Each fault is refused by the operations that use what is wrong, and by no other.
func TestCheck(t *testing.T) {
	t.Parallel()
	ops := []string{"acquire", "extend", "release", "watch"}
	tooMany := math.MaxInt32
	tooMany++ // negative where an int has 32 bits
	for _, c := range []struct {
		what    string
		of      func(c *core.Claim)
		refused string // the operations, by their first letters
		want    error
		text    string
	}{
		{"nothing", func(*core.Claim) {}, "", nil, ""},
		{"no key", func(c *core.Claim) { c.Key = "" }, "aerw", core.ErrInvalid, "a key of 1 to 512 bytes"},
		{"a key of 513 bytes", func(c *core.Claim) { c.Key = strings.Repeat("k", 513) }, "aerw", core.ErrInvalid, "512 bytes"},
		{"a key of 512 bytes", func(c *core.Claim) { c.Key = strings.Repeat("é", 256) }, "", nil, ""},
		{"a key that is not UTF-8", func(c *core.Claim) { c.Key = "a\xff" }, "aerw", core.ErrInvalid, "UTF-8"},
		{"a key with a control character", func(c *core.Claim) { c.Key = "a\u0085" }, "aerw", core.ErrInvalid, "printable"},
		{"a key with a brace", func(c *core.Claim) { c.Key = "a}" }, "aerw", core.ErrInvalid, "braces"},
		{"no lease", func(c *core.Claim) { c.Lease = "" }, "aerw", core.ErrInvalid, "lease"},
		{"no owner", func(c *core.Claim) { c.Owner = "" }, "aerw", core.ErrInvalid, "owner"},
		{"a TTL below 1ms", func(c *core.Claim) { c.TTL = time.Millisecond - 1 }, "ae", core.ErrInvalid, "TTL"},
		{"no weight", func(c *core.Claim) { c.Weight = 0 }, "a", core.ErrInvalid, "weight"},
		{"more weight than the limit", func(c *core.Claim) { c.Weight, c.Limit = 3, 2 }, "a", core.ErrInvalid, "weight"},
		{"a limit above all", func(c *core.Claim) { c.Limit = core.All + 1 }, "a", core.ErrInvalid, "limit"},
		{"the highest token", func(c *core.Claim) { c.MinToken = 1 << 52 }, "", nil, ""},
		{"a token above that", func(c *core.Claim) { c.MinToken = 1<<52 + 1 }, "a", core.ErrInvalid, "2^52"},
		{"a token of a reader", func(c *core.Claim) { c.Weight, c.MinToken = 1, 1 }, "a", core.ErrUnsupported, "not exclusive"},
		{"a record kept for nothing", func(c *core.Claim) { c.Record = &core.Record{} }, "a", core.ErrInvalid, "at least 1ms"},
		{"a record kept for less", func(c *core.Claim) { c.Record = &core.Record{Retain: -1} }, "ar", core.ErrInvalid, "at least 1ms"},
		{"a record of more than 64 MiB", func(c *core.Claim) {
			c.Record = &core.Record{Retain: time.Hour, Value: make([]byte, 64<<20+1)}
		}, "ar", core.ErrInvalid, "64 MiB"},
		{"the most attempts", func(c *core.Claim) { c.Record = &core.Record{Retain: time.Hour, Attempt: math.MaxInt32} }, "", nil, ""},
		{"too many attempts", func(c *core.Claim) { c.Record = &core.Record{Retain: time.Hour, Attempt: tooMany} }, "r", core.ErrInvalid, "2^31-1"},
		{"fewer than no attempts", func(c *core.Claim) { c.Record = &core.Record{Retain: time.Hour, Attempt: -1} }, "r", core.ErrInvalid, "attempts"},
	} {
		for _, op := range ops {
			claim := core.Claim{Key: "order:42", Owner: "o", Lease: "l", Weight: core.All, Limit: core.All, TTL: time.Second}
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
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, core.ErrInvalid) || !strings.HasPrefix(err.Error(), "store: look: a key ")) {
			t.Errorf("%q, braces %v: got %v", c.key, c.braces, err)
		}
	}
}
