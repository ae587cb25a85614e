package latency_test

import (
	"context"
	"crypto/rand"
	mrand "math/rand/v2"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

// fault is a disturbance of the messages between a service and its store.
type fault struct {
	name, title string
	testserver.Impairment
}

// faults are the rows of the table. The first row has no fault.
var faults = []fault{
	{name: "none", title: "none"},
	{"delay 10 ms", "10 ms each way", testserver.Impairment{Delay: 10 * time.Millisecond}},
	{"delay 50 ms", "50 ms each way", testserver.Impairment{Delay: 50 * time.Millisecond}},
	{"delay 200 ms", "200 ms each way", testserver.Impairment{Delay: 200 * time.Millisecond}},
	{"jitter", "10 to 110 ms each way", testserver.Impairment{Delay: 10 * time.Millisecond, Jitter: 100 * time.Millisecond}},
	{"lost packets", "5 % of the messages lost", testserver.Impairment{Loss: 0.05}},
	{"dropped connections", "3 % of the messages break their connection", testserver.Impairment{Drop: 0.03}},
}

// onFiles reports whether the fault applies to files too.
func (f fault) onFiles() bool { return f.Loss == 0 && f.Drop == 0 }

// lag returns the fault's delay, with random jitter.
func (f fault) lag() time.Duration {
	if f.Jitter == 0 {
		return f.Delay
	}
	return f.Delay + mrand.N(f.Jitter)
}

// bites returns how often the fault took effect.
func (f fault) bites(t testserver.Toll) int {
	switch {
	case f.Loss > 0:
		return t.Lost
	case f.Drop > 0:
		return t.Dropped
	}
	return t.Delayed
}

const (
	replicas = 3
	// leastBites is the minimum number of times that a fault must take effect in a run.
	// A run with fewer effects gets more rounds, up to maxRounds times as many.
	leastBites = 10
	maxRounds  = 20
)

// play pays some rounds of orders on a place with the fault, and judges the outcome.
func play(t *testing.T, p place, f fault, rounds int) *verdict {
	t.Helper()
	l, u := newLedger(), newUsers()
	t.Cleanup(u.client.CloseIdleConnections)
	all := make([]*replica, replicas)
	keyed := true
	for i := range all {
		locks, kept := p.open(t)
		all[i], keyed = newReplica(t, l, locks, kept), kept != nil
	}
	// Each replica opens its connections before the server becomes slow.
	for i := range all {
		key := ""
		if keyed {
			key = rand.Text()
		}
		u.insist(t.Context(), all[i:i+1], 0, rand.Text(), key)
	}
	l.clear()
	u.tries, u.unserved = nil, nil
	p.impair(f)
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		u.round(ctx, all, keyed)
		cancel()
		if n >= rounds && (f.Impairment == testserver.Impairment{} || f.bites(p.toll()) >= leastBites || n >= maxRounds*rounds) {
			break
		}
	}
	p.impair(fault{})
	v := judge(l, u)
	if charged := len(l.orders()); charged != len(u.asked) && v.wrong[unserved] == 0 {
		v.add(falsely, "%d orders were charged, want %d", charged, len(u.asked))
	}
	return v
}

// TestLatency checks a server that is slow or loses messages. Nothing may be charged
// twice, each charge must have its receipt, and each answer must be of a known kind. The
// test covers hazard 78.
func TestLatency(t *testing.T) {
	keep(t)
	for _, at := range places {
		for _, f := range faults {
			if at.file && !f.onFiles() {
				continue
			}
			t.Run(at.name+" "+f.name, func(t *testing.T) {
				t.Parallel()
				run(t, at.open(t), f, long(10))
			})
		}
	}
}

// run plays a scene, and fails the test for each violation.
func run(t *testing.T, p place, f fault, rounds int) view {
	t.Helper()
	v := play(t, p, f, rounds)
	bites := f.bites(p.toll())
	t.Logf("%d answers: p50 %v, p99 %v, %d paid, %d refused, %d failed; %+v", v.seen.Answers, v.seen.P50, v.seen.P99, v.seen.Paid, v.seen.Refused, v.seen.Failed, p.toll())
	for i, detail := range v.details {
		if i == 20 {
			t.Logf("and %d more", len(v.details)-i)
			break
		}
		t.Log(detail)
	}
	for _, what := range v.faults() {
		t.Error(what)
	}
	if v.seen.Paid == 0 || f.Impairment != (testserver.Impairment{}) && bites < leastBites {
		t.Errorf("test setup: %d paid, the fault bit %d times, want %d", v.seen.Paid, bites, leastBites)
	}
	facts := tally.Facts{
		Part: "latency", Runs: 1, Violations: v.wrong,
		Outcomes: map[string]int{"paid": v.seen.Paid, "refused": v.seen.Refused, "failed": v.seen.Failed},
	}
	if bites > 0 {
		facts.Faults = map[string]int{"latency: " + f.name: bites}
	}
	tally.Note(t, facts)
	return v.seen
}
