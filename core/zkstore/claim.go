package zkstore

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
)

// maxToken is the highest token that can be asked for. Tokens stay below 2^53, and a key
// with one just below that could never be granted again.
const maxToken = 1 << 52

// CheckClaim implements core.Checker.
func (s *Store) CheckClaim(c core.Claim) error {
	if c.Record != nil {
		return unsupported("acquire")
	}
	return usable("acquire", c)
}

// usable refuses claims that no Locker sends, before anything is sent: a weight
// that is not positive, for example, would make room for others.
func usable(op string, c core.Claim) error {
	var fault string
	switch {
	case c.Key == "" || len(c.Key) > 512 || !utf8.ValidString(c.Key) || strings.ContainsAny(c.Key, "{}") ||
		strings.ContainsFunc(c.Key, unicode.IsControl):
		fault = "a key of 1 to 512 bytes of printable UTF-8 without braces is needed"
	case c.Lease == "" || c.Owner == "":
		fault = "an owner and a lease are needed"
	case op == "watch" || op == "release":
		return nil
	case c.TTL < time.Millisecond:
		fault = "a TTL of at least 1ms is needed"
	case op == "extend":
		return nil
	case c.Weight < 1 || c.Weight > c.Limit || c.Limit > core.All:
		fault = "the weight has to be at least 1 and at most the limit"
	case c.MinToken > maxToken:
		fault = "a least token of at most 2^52 leaves room to grow below 2^53"
	case c.MinToken > 0 && c.Weight < core.All:
		return fmt.Errorf("zkstore: %s: a token for a claim that is not exclusive: %w", op, core.ErrUnsupported)
	default:
		return nil
	}
	return fmt.Errorf("zkstore: %s: %s: %w", op, fault, core.ErrInvalid)
}
