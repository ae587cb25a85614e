package hazards_test

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestIsolatedMaster cuts a master off together with its clients, and the sentinels
// choose another master (hazard 33). This is the limit of replication: each side grants
// the key, and the token distinguishes the two holders. If a grant needs a replica, the
// cut-off side grants nothing, or only for a few seconds.
func TestIsolatedMaster(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	n := 3 // each trial takes a minute of failovers
	if os.Getenv("LONG") == "1" {
		n = 10
	}
	t.Run("limit where both sides grant", func(t *testing.T) {
		trials(t, n, bothSidesGrant)
	})
	t.Run("min-replicas-to-write", func(t *testing.T) {
		trials(t, n, minReplicas)
	})
}

const isolatedTTL = 6 * time.Second

// isolation is three hosts. The first host has the master and two clients.
type isolation struct {
	cluster *testserver.Sentinel
	hosts   []*testserver.Host
	plain   *child
	before  int          // the order with which plain acquired a key before the partition
	acked   *child       // each of its grants needs one replica's acknowledgement
	rival   *core.Locker // asks the sentinels that are not cut off
}

func isolate(t *testing.T, args ...string) *isolation {
	t.Helper()
	i := &isolation{}
	i.cluster, i.hosts = testserver.NewNet(t).StartSentinel(args...)
	addr := i.cluster.Nodes[0].Addr
	i.plain = newChildOn(t, i.hosts[0], plan{Name: "cut off", Addr: addr})
	i.acked = newChildOn(t, i.hosts[0], plan{Name: "cut off, with acknowledgement", Addr: addr, Replicas: 1})
	i.before, _ = i.plain.acquire(order{Key: "before", TTL: isolatedTTL})
	i.acked.acquire(order{Key: "before, acknowledged", TTL: isolatedTTL})
	i.rival = lockerOf(t, testclient.Sentinel(t, i.cluster.Without(0)), nil)
	return i
}

// failedOver waits until another server is master.
func (i *isolation) failedOver(t *testing.T) {
	t.Helper()
	rest := i.cluster.Without(0)
	old := i.cluster.Nodes[0]
	if now := rest.AwaitFailover(old); now == old {
		t.Fatal("test setup: there is no other master")
	}
}

func (c *child) try(o order) (id int, r report) {
	c.t.Helper()
	o.Op, o.Try = "acquire", true
	id = c.send(o)
	return id, c.await(id, "acquired", "refused")
}

// unanswered reports whether an attempt was not answered in time. This happens on a busy
// machine.
func unanswered(r report) bool {
	return r.is("unavailable") && (strings.Contains(r.Text, "outcome unknown") || strings.Contains(r.Text, "no answer"))
}

// wantRefused fails the test unless the attempt was refused as unavailable, with why in
// the error's text.
func wantRefused(t *testing.T, r report, why string) {
	t.Helper()
	if r.OK || !r.is("unavailable") || !strings.Contains(r.Text, why) {
		t.Errorf("got %v %q, want unavailable: %s", r.OK, r.Text, why)
	}
}

func bothSidesGrant(t *testing.T, _ int) {
	i := isolate(t)
	i.hosts[0].Cut()
	held, holder := i.plain.acquire(order{Key: "order:1", TTL: isolatedTTL})
	refusedAlone := func() {
		_, r := i.acked.try(order{Key: "order:2", TTL: isolatedTTL})
		for n := 0; n < 10 && unanswered(r); n++ {
			// The previous attempt may have taken effect, so this attempt uses another
			// key.
			_, r = i.acked.try(order{Key: "order:2:" + rand.Text(), TTL: isolatedTTL})
		}
		wantRefused(t, r, "0 of 1 replicas")
	}
	refusedAlone()
	i.failedOver(t)

	rival := acquire(t, i.rival, "order:1", core.TTL(isolatedTTL))
	if !i.plain.await(i.plain.send(order{Op: "check", Lease: held}), "checked").OK {
		t.Error("there are no two holders; if this is prevented now, the documentation promises too little")
	}
	reg := newRegister(t)
	if !reg.write(rival.Token(), "rival") {
		t.Error("the register refused the rival: its token is not newer")
	}
	if reg.write(holder.Token, "holder") {
		t.Errorf("the register took the stale write: token %d after %d", holder.Token, rival.Token())
	}

	// The later of two grants has the newer token, even on the cut-off side.
	first := acquire(t, i.rival, "order:3", core.TTL(isolatedTTL))
	_, last := i.plain.acquire(order{Key: "order:3", TTL: isolatedTTL})
	reg = newRegister(t)
	if !reg.write(first.Token(), "rival") || !reg.write(last.Token, "holder") || reg.write(first.Token(), "rival") {
		t.Errorf("the register went back: tokens %d and then %d", first.Token(), last.Token)
	}

	refusedAlone()
	release(t, acquire(t, i.rival, "order:2", core.TTL(isolatedTTL)))

	// After the hosts are joined again, the old master becomes a replica.
	i.hosts[0].Join()
	if end := i.plain.await(held, "ended"); !end.is("lost") {
		t.Errorf("the holder on the cut-off side ended with %q, want lost", end.Text)
	}
	wantHeld(t, rival)
	release(t, rival)
	tally.Note(t, tally.Facts{
		Part: "limits", Runs: 1, Faults: map[string]int{"master cut off": 1}, Grants: 6,
		Violations: map[string]int{"stale writes": 0}, Expected: map[string]int{"overlaps": 2},
	})
}

func minReplicas(t *testing.T, _ int) {
	// A lag of one second is too short, because replicas report their progress once a
	// second.
	const lag = 3 * time.Second
	i := isolate(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "3")
	i.hosts[0].Cut()
	cut := mono()
	lastGrant, granted := int64(0), 0
	for end := cut + int64(patience); ; time.Sleep(50 * time.Millisecond) {
		id, r := i.plain.try(order{Key: "order:1", TTL: isolatedTTL})
		if !r.OK && !r.is("busy") && !unanswered(r) {
			wantRefused(t, r, "NOREPLICAS")
			break
		}
		if r.OK {
			lastGrant, granted = r.At, granted+1
			i.plain.await(i.plain.send(order{Op: "release", Lease: id}), "released")
		}
		if mono() > end {
			t.Fatal("the cut-off side goes on granting")
		}
	}
	if window := ms(cut, lastGrant); window > lag+3*time.Second+slack {
		t.Errorf("the cut-off side granted for %v", window)
	}
	i.failedOver(t)
	_, r := i.plain.try(order{Key: "order:1", TTL: isolatedTTL})
	for n := 0; n < 10 && unanswered(r); n++ {
		_, r = i.plain.try(order{Key: "order:1", TTL: isolatedTTL})
	}
	wantRefused(t, r, "NOREPLICAS")
	end := i.plain.await(i.before, "ended")
	if !end.is("lost") || ms(cut, end.At) > lag+3*time.Second+isolatedTTL+slack {
		t.Errorf("the holder of before ended %v after the cut with %q", ms(cut, end.At), end.Text)
	}
	rival := acquire(t, i.rival, "before", core.TTL(isolatedTTL), core.Wait(patience))
	if mono() < end.At {
		t.Error("two held the key")
	}
	release(t, rival)
	t.Logf("the cut-off side granted %d times, for %v", granted, ms(cut, lastGrant))
	tally.Note(t, tally.Facts{
		Part: "processes", Runs: 1, Faults: map[string]int{"master cut off": 1}, Grants: granted,
		Outcomes: map[string]int{"unavailable": 2, "lost": 1},
	})
}
