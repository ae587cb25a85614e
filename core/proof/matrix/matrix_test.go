package matrix_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

// operations are the operations of a lease, in the order of its life.
var operations = []struct {
	name string
	play func(*rig)
}{
	{"acquire", acquireOp},
	{"re-enter", reenterOp},
	{"renew", renewOp},
	{"leave", leaveOp},
	{"release", releaseOp},
	{"record", recordOp},
	{"wait", waitOp},
}

// TestMatrix checks each message of a lease, with each fault, on each kind of Redis,
// and on one server with Redisson's keys too. It omits the cells for which lacks
// returns true.
//
// The test covers hazards 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 25, 39 and 58.
func TestMatrix(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	bit := make(map[string]int)
	outcomes := make(map[string]int)
	var mu sync.Mutex
	cells := 0
	all := places(t)
	t.Run("all cells", func(t *testing.T) {
		for _, op := range operations {
			for _, f := range faults {
				c, known := table[op.name][f.name]
				if !known {
					t.Errorf("the table does not say what comes of %s with %s", op.name, f.name)
					continue
				}
				for _, p := range all {
					if p.lacks(op.name, f) {
						continue
					}
					cells++
					for trial := range trials() {
						t.Run(fmt.Sprint(op.name, " ", f.name, " ", p.name, " ", trial+1), func(t *testing.T) {
							t.Parallel()
							r := newRig(t, p, c, f, trial)
							op.play(r)
							if t.Failed() {
								t.Logf("what was wanted: %s", c.why)
								return
							}
							mu.Lock()
							defer mu.Unlock()
							bit[f.name] += r.times()
							if c.says == nil {
								outcomes["done"]++
							} else {
								outcomes["unavailable"]++
							}
						})
					}
				}
			}
		}
	})
	trialsPlayed := 0
	for _, n := range bit {
		trialsPlayed += n
	}
	if n := int(tooBusy.Load()); n > trialsPlayed/10 {
		t.Errorf("test setup: the machine was too busy %d times", n)
	}
	want := cells * trials()
	if !t.Failed() && trialsPlayed != want {
		t.Errorf("test setup: %d faults in %d trials", trialsPlayed, want)
	}
	tally.Note(t, tally.Facts{
		Part: "matrix", Runs: trialsPlayed, Faults: bit, Outcomes: outcomes,
		Violations: map[string]int{"overlaps": 0, "tokens back": 0, "left behind": 0},
		Versions:   map[string]string{"redis-server": all[0].version},
	})
}
