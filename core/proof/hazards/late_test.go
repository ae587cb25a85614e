package hazards_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestLateMessages delivers requests and replies late. These messages must not change
// the hold of another lease, and must not lengthen the trust in a lease.
func TestLateMessages(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	s := newSite(t)
	scenes := []struct {
		name   string
		trials int
		play   func(t *testing.T, r *rig, n int)
	}{
		// hazard 13
		{"release after the next grant", count(50), lateRelease},
		// hazard 14
		{"extension after the next grant", count(50), lateExtension},
		// hazard 15
		{"extension after a longer one", 10, lateShortExtension},
		// hazard 44. The slow answer does not lengthen the lease.
		{"slow answer to an acquire", 10, slowGrant},
		// hazards 10 and 44. The slow answer does not lengthen the lease.
		{"slow answer to an extension", 10, slowExtension},
		// hazard 44. Acquire does not return the grant.
		{"grant after its lease expired", count(50), staleGrant},
	}
	for i, scene := range scenes {
		t.Run(scene.name, func(t *testing.T) {
			t.Parallel()
			bit := newBites(t, "a message was late", scene.trials/2)
			trials(t, scene.trials, func(t *testing.T, n int) {
				r := s.rig(t, fmt.Sprintf("late:%d:%d", i, n), n)
				r.bit = bit
				scene.play(t, r, n)
			})
		})
	}
}

// unchanged delivers the message that fault holds. It fails the test if the message
// changes the key, or if the key then lives for longer than life.
func (r *rig) unchanged(fault *testserver.Fault, script string, life time.Duration) {
	r.t.Helper()
	before, calls := r.asks.fields(r.key), len(r.tap.calls(script, r.key))
	fault.Deliver()
	r.tap.awaitCalls(script, r.key, calls+1)
	r.bit.add()
	after := r.asks.fields(r.key)
	for field, value := range before {
		// When a script replaces a short string by fields, the times in the fields are
		// exact only to some milliseconds.
		if moments.ReplaceAllString(after[field], "") != moments.ReplaceAllString(value, "") {
			r.t.Errorf("%s is %q, was %q", field, after[field], value)
		}
	}
	if left := r.asks.PTTL(context.Background(), stored(r.key)).Val(); left > life {
		r.t.Errorf("the key lives for %v, want at most %v", left, life)
	}
}

// moments matches times in microseconds.
var moments = regexp.MustCompile(`\b\d{16}\b`)

func lateRelease(t *testing.T, r *rig, _ int) {
	const ttl = 30 * time.Second
	lease := acquire(t, r.locker, r.key, core.TTL(3*time.Second))
	fault := r.inject("release", testserver.HoldRequest)
	release(t, lease) // the second attempt of the release succeeds
	fault.Await(t)
	next := acquire(t, r.direct, r.key, core.Wait(patience), core.TTL(ttl))
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	r.unchanged(fault, "release", ttl)
	wantBusy(t, newLocker(t, r.server.Addr), r.key)
	if err := next.Extend(t.Context(), ttl); err != nil {
		t.Errorf("extend: %v", err)
	}
	release(t, next)
}

func lateExtension(t *testing.T, r *rig, _ int) {
	const ttl = 20 * time.Second
	lease := acquire(t, r.locker, r.key, core.TTL(30*time.Second))
	fault := r.inject("extend", testserver.HoldRequest)
	done := make(chan error, 1)
	go func() { done <- lease.Extend(context.Background(), time.Minute) }()
	fault.Await(t)
	release(t, lease)
	next := acquire(t, r.direct, r.key, core.Wait(patience), core.TTL(ttl), core.NoRenew())
	r.unchanged(fault, "extend", ttl)
	wantErr(t, "extend", <-done, core.ErrLost)
	wantHeld(t, next)
	release(t, next)
}

func lateShortExtension(t *testing.T, r *rig, _ int) {
	const long = 10 * time.Minute
	lease := acquire(t, r.locker, r.key, core.TTL(3*time.Second))
	hold := r.asks.hold(r.key)
	// The watchdog's first extension is delayed, and a longer extension overtakes it.
	fault := r.inject("extend", testserver.HoldRequest)
	fault.Await(t)
	if err := lease.Extend(t.Context(), long); err != nil {
		t.Fatalf("extend: %v", err)
	}
	before := r.asks.fields(r.key)[hold]
	r.unchanged(fault, "extend", long)
	if err := lease.Extend(t.Context(), time.Second); err != nil {
		t.Errorf("extend: %v", err)
	}
	if after := r.asks.fields(r.key)[hold]; after != before {
		t.Errorf("the hold is %q, was %q", after, before)
	}
	if left := time.Until(lease.Deadline()); left < long/2 {
		t.Errorf("the lease is trusted for %v, want about %v", left, long)
	}
	release(t, lease)
}

// slowReply is the delay of a reply. The reply still arrives in time for its attempt, but
// the delay exceeds the margin of trust of a lease of slowTTL.
const (
	slowTTL   = 10 * time.Second
	slowReply = 700 * time.Millisecond
)

// endsInTime waits for the end of the lease. It fails the test if the lease was still
// relied on when its hold could expire.
func (r *rig) endsInTime(lease *core.Lease) {
	r.t.Helper()
	hold := r.asks.hold(r.key)
	var expiry int64
	until := guard(lease, time.Hour, func() { expiry = max(expiry, r.asks.expiry(r.key, hold)) })
	if until >= expiry {
		r.t.Errorf("the lease was relied on %v after its hold could expire", ms(expiry, until))
	}
	wantLost(r.t, lease)
}

// deliverSlowly delivers the message that fault holds after slowReply.
func deliverSlowly(fault *testserver.Fault) {
	go func() {
		select {
		case <-fault.Fired():
			time.Sleep(slowReply)
		case <-time.After(patience):
		}
		fault.Deliver()
	}()
}

func slowGrant(t *testing.T, r *rig, _ int) {
	fault := r.inject("acquire", testserver.HoldReply)
	deliverSlowly(fault)
	lease := acquire(t, r.locker, r.key, core.TTL(slowTTL), core.NoRenew())
	if r.proxy.Count(testserver.Match{Script: "acquire", Arg: stored(r.key)}) == 1 {
		r.bit.add()
	}
	r.endsInTime(lease)
}

func slowExtension(t *testing.T, r *rig, _ int) {
	lease := acquire(t, r.locker, r.key, core.TTL(slowTTL))
	fault := r.inject("extend", testserver.HoldReply)
	r.injectAll("extend", testserver.DropRequest, -1)
	deliverSlowly(fault)
	r.endsInTime(lease)
	if len(r.events.all(core.Extended)) == 1 {
		r.bit.add()
	}
}

// staleGrant stops a process while the answer to its acquire is in flight. So none of
// the process's time-outs can fire.
func staleGrant(t *testing.T, r *rig, _ int) {
	const ttl = 2 * time.Second
	c := newChild(t, plan{Addr: r.proxy.Addr})
	fault := r.injectAll("acquire", testserver.HoldReply, -1)
	id := c.send(order{Op: "acquire", Key: r.key, TTL: ttl, Try: true})
	testserver.Eventually(t, patience, "the server has granted it", func() bool { return r.asks.holds(r.key) == 1 })
	c.pause()
	if _, over, _ := c.find(id, "refused"); over {
		return // the process was stopped too late
	}
	r.bit.add()
	rival := acquire(t, r.direct, r.key, core.Wait(patience))
	fault.Deliver()
	c.resume()
	if got := c.await(id, "acquired", "refused"); got.OK {
		check := c.await(c.send(order{Op: "check", Lease: id}), "checked")
		t.Errorf("the late grant was handed out, and the lease's first check said %v, while another one holds", check.OK)
	} else if !got.is("unavailable") && !got.is("busy") {
		t.Errorf("acquire: %s", got.Text)
	}
	wantHeld(t, rival)
	release(t, rival)
	wantFree(t, r.direct, r.key)
}
