// Package claims contains the checks that all stores on servers make before a claim is
// sent. A Locker sends no claim that these checks refuse, but another caller of a store
// may. For example, a weight that is not positive would make room for other claims.
//
// Each store adds its own checks. In Redis a lease and an owner must not contain a
// space, because spaces separate the parts of an entry. pgstore accepts leases and
// owners of at most 256 bytes, and times of at most 100 years. Sessions of ZooKeeper
// cannot store records. redlock checks only that a majority can decide a claim. Its
// nodes check everything else. memstore uses only CheckKey, and only for operators.
// memstore has no stored format, so it accepts any key except "", any value and any
// limit. core/storetest builds broken stores on memstore, and their claims exceed
// store.All.
package claims

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

const (
	// maxToken is the highest token that a claim may require. Tokens stay below 2^53,
	// because a Lua number is exact up to 2^53. A key whose token is just below 2^53
	// could never be granted again.
	maxToken = 1 << 52
	// maxValue is the maximum length of a record's value in bytes. Redis accepts no
	// argument of more than 512 MiB, and serves no other request while it copies an
	// argument.
	maxValue = 64 << 20
	// maxAttempt is the highest number of attempts in a record. It fits an int on every
	// platform, so every process can read the numbers of other processes.
	maxAttempt = math.MaxInt32
)

// Check returns an error if c is not allowed for op: "acquire", "extend", "release" or
// "watch". It checks the fields that op uses. The error matches store.ErrInvalid, or
// store.ErrUnsupported if a claim that is not exclusive requires a token.
func Check(s, op string, c *store.Claim, braces bool) error {
	fault := badKey(c.Key, braces)
	switch {
	case fault != "":
	case c.Lease == "" || c.Owner == "":
		fault = "owner or lease is empty"
	case op == "watch":
	case op == "release":
		fault = badRecord(op, c.Record)
	case c.TTL < time.Millisecond:
		fault = fmt.Sprintf("TTL %s is out of range (at least 1 ms)", words.Duration(c.TTL))
	case op == "extend":
	case c.Weight < 1 || c.Weight > c.Limit || c.Limit > store.All:
		fault = fmt.Sprintf("weight %d of limit %d is out of range (1 <= weight <= limit <= %d)", c.Weight, c.Limit, store.All)
	case c.MinToken > maxToken:
		fault = "MinToken is out of range (at most 2^52, so that tokens stay below 2^53)"
	case c.MinToken > 0 && c.Weight < store.All:
		return fmt.Errorf("%s: %s: MinToken of a claim that is not exclusive: %w", s, op, store.ErrUnsupported)
	default:
		fault = badRecord(op, c.Record)
	}
	if fault == "" {
		return nil
	}
	return fmt.Errorf("%s: %s: %s: %w", s, op, fault, store.ErrInvalid)
}

// CheckKey fails with store.ErrInvalid unless key is 1 to 512 bytes of printable UTF-8.
// If braces is false, it also refuses a key with braces.
func CheckKey(op, key string, braces bool) error {
	if fault := badKey(key, braces); fault != "" {
		return fmt.Errorf("%s: %s: %w", op, fault, store.ErrInvalid)
	}
	return nil
}

func badKey(key string, braces bool) string {
	if key == "" || len(key) > 512 || !printable(key) {
		return "key is not printable UTF-8 (1 to 512 bytes)"
	}
	if !braces && strings.ContainsAny(key, "{}") {
		return "key contains a brace, use core.Key to escape it"
	}
	return ""
}

func printable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c-' ' > '~'-' ' {
			return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
		}
	}
	return true
}

func badRecord(op string, r *store.Record) string {
	switch {
	case r == nil:
	case len(r.Value) > maxValue:
		return fmt.Sprintf("record has a value of %d bytes (at most 64 MiB)", len(r.Value))
	case r.Retain < 0 || op == "acquire" && r.Retain < time.Millisecond:
		return fmt.Sprintf("record has Retain %s, out of range (at least 1 ms)", words.Duration(r.Retain))
	case op == "release" && (r.Attempt < 0 || r.Attempt > maxAttempt):
		return fmt.Sprintf("record has %d attempts, out of range (0 to 2^31-1)", r.Attempt)
	}
	return ""
}
