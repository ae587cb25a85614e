package redisstore

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// maxValue is how long a record's value may be: a server takes no word of more
// than 512 MiB, and does nothing else while it copies one.
const maxValue = 64 << 20

// maxAttempt is exact as a number in Lua, with room to count on.
const maxAttempt = 1 << 40

// The states in which a record is saved, as constants.
var savedDone, savedOpen any = "1", "2"

// recordable refuses records that would break the stored format.
func (s *Store) recordable(op string, r *core.Record) error {
	var fault string
	switch {
	case r == nil:
		return nil
	case s.plain:
		return fmt.Errorf("redisstore: %s: a record with plain keys: %w", op, core.ErrUnsupported)
	case len(r.Value) > maxValue:
		fault = "a record has a value of at most 64 MiB"
	case r.Retain < 0 || op == "acquire" && r.Retain < time.Millisecond:
		fault = "a record is kept for at least 1ms"
	case op == "release" && (r.Attempt < 0 || r.Attempt > maxAttempt):
		fault = "a record counts from 0 to 2^40 attempts"
	default:
		return nil
	}
	return fmt.Errorf("redisstore: %s: %s: %w", op, fault, core.ErrInvalid)
}

// save adds the arguments with which release.lua saves r. The value is copied,
// since the caller may leave while it is being written.
func save(cmd *pipeline.Call, r *core.Record) {
	state := savedOpen
	if r.Done {
		state = savedDone
	}
	cmd.Num(int64(r.Attempt)).Word(state).Num(millis(r.Retain)).Text(string(r.Value))
}

// recorded reads the record in an answer of acquire.lua: its attempt, how long it is
// kept, and its value, which is the claim's own if the answer has none. It is nil if
// the answer cannot be read.
func recorded(c *core.Claim, a []any) *core.Record {
	if c.Record == nil || len(a) < 2 {
		return nil
	}
	attempt, okAttempt := a[0].(int64)
	left, okLeft := a[1].(int64)
	r := &core.Record{Attempt: int(attempt), Retain: time.Duration(left) * time.Millisecond}
	if len(a) == 2 || a[2] == nil {
		r.Value = append(r.Value, c.Record.Value...)
	} else if value, ok := a[2].(string); ok {
		r.Value = []byte(value)
	} else {
		return nil
	}
	if !okAttempt || !okLeft {
		return nil
	}
	return r
}
