package redisstore

import (
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
)

// The states in which a record is saved, as constants.
var savedDone, savedOpen any = "1", "2"

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
