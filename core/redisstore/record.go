package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// savedDone and savedOpen are the states in which a record is saved.
var savedDone, savedOpen any = "1", "2"

// save adds the arguments with which release.lua saves the record of c. The last
// argument is the whole string to store if the key has no other entries, see clock.lua.
// Building this string in the script would cost the server more than the rest of the
// script, if the value is long.
func save(cmd *pipeline.Call, c *store.Claim) {
	r, state, token := c.Record, savedOpen, ""
	if r.Done {
		state = savedDone
	}
	if c.Last > 0 {
		token = "\tt " + strconv.FormatUint(c.Last, 10)
	}
	cmd.Num(int64(r.Attempt)).Word(state).Num(millis(r.Retain)).
		Text(fmt.Sprintf("f\tr 0 %d %s %s%s\tv %s", r.Attempt, state, c.Lease, token, r.Value))
}

// replayed reads acquire.lua's answer about a finished record: its remaining time and
// the stored string. It returns nil if the answer is invalid.
func replayed(a []any) *store.Record {
	if len(a) != 2 {
		return nil
	}
	left, ok := a[0].(int64)
	text, _ := a[1].(string)
	head, value, found := strings.Cut(text, "\tv ")
	words := strings.SplitN(head, " ", 4)
	if !ok || !found || len(words) < 4 {
		return nil
	}
	attempt, err := strconv.Atoi(words[2])
	if err != nil {
		return nil
	}
	return &store.Record{Value: []byte(value), Attempt: attempt, Done: true, Retain: time.Duration(left) * time.Millisecond}
}

// recorded reads the record in acquire.lua's answer about a run that has begun: its
// attempt, its remaining time, and its value. If the answer has no value, the record
// has the claim's value. It returns nil if the answer is invalid.
func recorded(c *store.Claim, a []any) *store.Record {
	if c.Record == nil || len(a) < 2 {
		return nil
	}
	attempt, okAttempt := a[0].(int64)
	left, okLeft := a[1].(int64)
	r := &store.Record{Attempt: int(attempt), Retain: time.Duration(left) * time.Millisecond}
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
