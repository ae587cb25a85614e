package matrix_test

import "github.com/lockkit/lockkit/core/testserver"

// fault is what happens to the message of an operation.
type fault struct {
	name   string
	action testserver.Action
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
	{"request lost", testserver.DropRequest, inTime},
	{"reply lost and closed", testserver.CloseReply, inTime},
	{"reply lost and hung", testserver.DropReply, inTime},
	{"late within the lease", testserver.HoldRequest, within},
	{"late beyond the lease", testserver.HoldRequest, beyond},
	{"duplicated", testserver.DoubleRequest, inTime},
	{"reordered", testserver.HoldRequest, overtaken},
	{"error reply", testserver.Action{}, inTime},
}

var errorReplies = []string{"LOADING Redis is loading the dataset in memory", "ERR something", "NOREPLICAS Not enough good replicas to write."}

// of is the fault for one trial.
func (f fault) of(trial int) testserver.Action {
	if f.action == (testserver.Action{}) {
		return testserver.ErrorReply(errorReplies[trial%len(errorReplies)])
	}
	return f.action
}
