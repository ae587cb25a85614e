package matrix_test

import "github.com/lockkit/lockkit/core/testserver"

// fault is a disturbance of the message of an operation.
type fault struct {
	name   string
	action testserver.Action
	when   moment
}

// moment is the time at which a late message arrives.
type moment int

const (
	inTime    moment = iota
	within           // after the engine has sent the request again and received the answer
	beyond           // after a lease from the time of the message would have expired
	overtaken        // after the next operation of the engine or its user
)

// faults lists what happens to a message. For an error reply, the request is not
// delivered. Depending on the trial, the error says that nothing was done, or leaves the
// outcome unknown.
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

func (f fault) of(trial int) testserver.Action {
	if f.action == (testserver.Action{}) {
		return testserver.ErrorReply(errorReplies[trial%len(errorReplies)])
	}
	return f.action
}
