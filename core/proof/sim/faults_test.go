package sim_test

import (
	"math"
	"math/rand/v2"
	"time"
)

// A fault is what happens to one command on its way.
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
	// Faults of more than one command.
	pause // nothing passes between a client and the server for a while
	wipe  // the server loses everything
	break_
	faults
)

var faultNames = [...]string{
	none: "none", dropRequest: "request dropped", dropReply: "reply dropped", closeRequest: "closed before the request",
	closeReply: "closed before the reply", delayRequest: "request delayed", delayReply: "reply delayed", duplicate: "request doubled",
	pause: "client paused", wipe: "server wiped", break_: "all connections broken",
}

func (f fault) String() string { return faultNames[f] }

// longest is how late the latest message comes.
const longest = 15 * time.Second

// plan says what happens to which command.
type plan struct {
	seed  uint64
	rate  float64 // of commands with a fault
	until time.Duration
	once  bool // nothing comes twice
}

// of is what happens to the n-th command of a client, and how long it takes.
func (p plan) of(client int, n uint64, f frame) (fault, time.Duration) {
	r := rand.New(rand.NewPCG(p.seed, uint64(client)<<40|n))
	if r.Float64() >= p.rate {
		return none, 0
	}
	what := dropRequest + fault(r.IntN(int(duplicate-dropRequest)+1))
	if what == duplicate && (p.once || !f.ofLock()) {
		what = none // a second subscriber would be another client
	}
	return what, lasting(r, 3*time.Millisecond, longest)
}

// lasting is a time between least and most: as often between 1 and 2 as between
// 2 and 4.
func lasting(r *rand.Rand, least, most time.Duration) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), r.Float64()))
}
