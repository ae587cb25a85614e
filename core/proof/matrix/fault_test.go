package matrix_test

import "github.com/lockkit/lockkit/core/redisstore/redistest"

// fault is what befalls the message of an operation.
type fault struct {
	name   string
	action redistest.Action
	when   moment
}

// moment is when a message that is late arrives.
type moment int

const (
	inTime    moment = iota
	within           // after the engine has asked again, and been answered
	beyond           // after a lease from then would have ended
	overtaken        // after what the engine, or its user, does next
)

// The faults. What takes the place of a request is an error that says that
// nothing was done, or one that says nothing, by turns.
var faults = []fault{
	{"request lost", redistest.DropRequest, inTime},
	{"reply lost and closed", redistest.CloseReply, inTime},
	{"reply lost and hung", redistest.DropReply, inTime},
	{"late within the lease", redistest.HoldRequest, within},
	{"late beyond the lease", redistest.HoldRequest, beyond},
	{"duplicated", redistest.DoubleRequest, inTime},
	{"reordered", redistest.HoldRequest, overtaken},
	{"error reply", redistest.Action{}, inTime},
}

var errorReplies = []string{"LOADING Redis is loading the dataset in memory", "ERR something", "NOREPLICAS Not enough good replicas to write."}

// of is the fault for one trial.
func (f fault) of(trial int) redistest.Action {
	if f.action == (redistest.Action{}) {
		return redistest.ErrorReply(errorReplies[trial%len(errorReplies)])
	}
	return f.action
}
