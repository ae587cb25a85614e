package pgstore

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
)

const (
	maxWord = 256 // bytes of a lease or an owner
	// maxToken is the highest token that can be asked for. Tokens stay below 2^53, and a
	// key with one just below that could never be granted again.
	maxToken = 1 << 52
	maxValue = 64 << 20 // bytes of a record; in a statement they are twice as many
	maxCount = 1 << 40  // attempts of a record
	// maxLife is the longest time that anything is kept for, so that no date is
	// out of range.
	maxLife = 100 * 365 * 24 * time.Hour
)

// CheckClaim implements core.Checker.
func (s *Store) CheckClaim(c core.Claim) error { return usable("acquire", &c) }

// usable refuses claims that the server would not take, before anything is sent.
func usable(op string, c *core.Claim) error {
	var fault string
	switch {
	case c.Key == "" || len(c.Key) > 512 || !utf8.ValidString(c.Key) || strings.ContainsFunc(c.Key, unicode.IsControl):
		fault = "a key of 1 to 512 bytes of printable UTF-8 is needed"
	case c.Lease == "" || len(c.Lease) > maxWord:
		fault = "a lease of 1 to 256 bytes is needed"
	case c.Owner == "" || len(c.Owner) > maxWord || len(c.Via) > maxWord:
		fault = "an owner of 1 to 256 bytes is needed"
	case op == "watch":
		return nil
	case c.TTL < 0 || c.TTL > maxLife || c.Keep < 0 || c.Keep > maxLife:
		fault = "nothing lasts for less than no time or for more than a hundred years"
	case op == "release":
		return recordable(op, c.Record)
	case c.TTL < time.Millisecond:
		fault = "a TTL of at least 1ms is needed"
	case op == "extend":
		return nil
	case c.Weight < 1 || c.Weight > c.Limit || c.Limit > core.All:
		fault = "the weight has to be at least 1 and at most the limit"
	case c.MinToken > maxToken:
		fault = "a least token of at most 2^52 leaves room to grow below 2^53"
	}
	if fault != "" {
		return fmt.Errorf("pgstore: %s: %s: %w", op, fault, core.ErrInvalid)
	}
	if c.MinToken > 0 && c.Weight < core.All {
		return fmt.Errorf("pgstore: %s: a token for a claim that is not exclusive: %w", op, core.ErrUnsupported)
	}
	return recordable(op, c.Record)
}

// recordable refuses records that would break the stored format.
func recordable(op string, r *core.Record) error {
	var fault string
	switch {
	case r == nil:
		return nil
	case len(r.Value) > maxValue:
		fault = "a record has a value of at most 64 MiB"
	case r.Retain < 0 || r.Retain > maxLife || op != "release" && r.Retain < time.Millisecond:
		fault = "a record is kept for at least 1ms and at most a hundred years"
	case op == "release" && (r.Attempt < 0 || r.Attempt > maxCount):
		fault = "a record counts from 0 to 2^40 attempts"
	default:
		return nil
	}
	return fmt.Errorf("pgstore: %s: %s: %w", op, fault, core.ErrInvalid)
}

// millis rounds d up to whole milliseconds.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
