package sim_test

import (
	"math"
	"math/rand/v2"
	"time"
)

// fault is a disturbance of the network or of the server. plan.of chooses the faults up
// to duplicate, each for one command.
type fault int

const (
	none fault = iota
	dropRequest
	dropReply
	closeRequest
	closeReply
	delayRequest
	delayReply
	duplicate
	// pause, wipe and break_ do not belong to one command.
	pause // nothing passes between a client and the server for some time
	wipe  // the server loses all data
	break_
	faults
)

var faultNames = [...]string{
	none: "none", dropRequest: "request dropped", dropReply: "reply dropped", closeRequest: "closed before the request",
	closeReply: "closed before the reply", delayRequest: "request delayed", delayReply: "reply delayed", duplicate: "request doubled",
	pause: "client paused", wipe: "server wiped", break_: "all connections broken",
}

func (f fault) String() string { return faultNames[f] }

// longest is the maximum delay of a message.
const longest = 15 * time.Second

// plan decides which fault each command has.
type plan struct {
	seed  uint64
	rate  float64 // fraction of the commands that have a fault
	until time.Duration
	once  bool // no command is duplicated
}

// of returns the fault of a client's n-th command, and the fault's duration.
func (p plan) of(client int, n uint64, f frame) (fault, time.Duration) {
	r := rand.New(rand.NewPCG(p.seed, uint64(client)<<40|n))
	if r.Float64() >= p.rate {
		return none, 0
	}
	what := dropRequest + fault(r.IntN(int(duplicate-dropRequest)+1))
	if what == duplicate && (p.once || !f.ofLock()) {
		what = none // a duplicated SUBSCRIBE would add a second subscriber
	}
	return what, lasting(r, 3*time.Millisecond, longest)
}

// lasting returns a random duration between the durations least and most. The logarithm
// of the duration is evenly distributed: durations from 1 to 2 are as frequent as
// durations from 2 to 4.
func lasting(r *rand.Rand, least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), r.Float64()))
}
