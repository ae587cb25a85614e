// Package claims contains the checks that all stores on servers make before a claim is
// sent. A Locker sends no claim that these checks refuse, but another caller of a store
// may. For example, a weight that is not positive would make room for other claims.
//
// Each store adds its own checks. In Redis a lease and an owner must not contain a space,
// because spaces separate the parts of an entry. Dates of PostgreSQL have a maximum, and
// sessions of ZooKeeper cannot store records. redlock checks only that a majority can
// decide a claim; its nodes check the rest. memstore uses only CheckKey, and only for
// operators. It has no format, and accepts any key except "", and any value and limit.
// core/storetest builds broken stores on memstore, with claims beyond store.All.
package claims

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core/store"
)

const (
	// maxToken is the highest token that a claim may require. Tokens stay below 2^53,
	// because a Lua number is exact up to 2^53. A key whose token is just below 2^53
	// could never be granted again.
	maxToken = 1 << 52
	// maxValue is the maximum length of a record's value in bytes. Redis accepts no
	// argument of more than 512 MiB, and does nothing else while it copies one.
	maxValue = 64 << 20
	// maxAttempt is the highest number of attempts in a record. It fits an int on every
	// platform, so that every process can read a number that another process has saved.
	maxAttempt = math.MaxInt32
)

// Check returns an error if c is not allowed for op: "acquire", "extend", "release" or
// "watch". It checks the fields that op uses. The error is store.ErrInvalid. For a
// required token of a claim that is not exclusive it is store.ErrUnsupported.
func Check(s, op string, c *store.Claim, braces bool) error {
	fault := badKey(c.Key, braces)
	switch {
	case fault != "":
	case c.Lease == "" || c.Owner == "":
		fault = "an owner and a lease are needed"
	case op == "watch":
	case op == "release":
		fault = badRecord(op, c.Record)
	case c.TTL < time.Millisecond:
		fault = "a TTL of at least 1ms is needed"
	case op == "extend":
	case c.Weight < 1 || c.Weight > c.Limit || c.Limit > store.All:
		fault = "the weight has to be at least 1 and at most the limit"
	case c.MinToken > maxToken:
		fault = "a least token of at most 2^52 leaves room to grow below 2^53"
	case c.MinToken > 0 && c.Weight < store.All:
		return fmt.Errorf("%s: %s: a token for a claim that is not exclusive: %w", s, op, store.ErrUnsupported)
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
		return "a key of 1 to 512 bytes of printable UTF-8 is needed"
	}
	if !braces && strings.ContainsAny(key, "{}") {
		return "a key without braces is needed, core.Key escapes them"
	}
	return ""
}

// printable reports whether s is printable UTF-8.
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
		return "a record has a value of at most 64 MiB"
	case r.Retain < 0 || op == "acquire" && r.Retain < time.Millisecond:
		return "a record is kept for at least 1ms"
	case op == "release" && (r.Attempt < 0 || r.Attempt > maxAttempt):
		return "a record counts from 0 to 2^31-1 attempts"
	}
	return ""
}
