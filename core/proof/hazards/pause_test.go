package hazards_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestPause stops holders for longer than their lease. It also checks leases at the
// moment at which they expire.
func TestPause(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	server := testserver.StartRedis(t)
	rivals := newLocker(t, server.Addr)

	// hazard 1
	t.Run("stopped and check finds the loss", func(t *testing.T) {
		t.Parallel()
		oracle := newOracle(t, 2*count(200))
		bit := newBites(t, "a holder was stopped in the middle of its work", count(200)*8/10)
		trials(t, count(200), func(t *testing.T, n int) {
			key := fmt.Sprintf("stopped:%d", n)
			reg := newRegister(t)
			c := newChild(t, plan{Addr: server.Addr})
			lease, _ := c.acquire(order{Key: key, TTL: ttl})
			work := c.send(order{Op: "steps", Lease: lease, Register: reg.Addr})
			c.await(work, "working")
			time.Sleep(rand.N(ttl))
			c.pause()
			stopped := mono()
			rival := acquire(t, rivals, key)
			r := span{Key: key, Who: "rival", From: mono(), Token: rival.Token()}
			if !reg.write(rival.Token(), "rival") {
				t.Error("the register refused the rival: its token is not newer")
			}
			time.Sleep(2 * ttl)
			c.resume()
			resumed := mono()
			end := c.await(work, "stopped")
			if !end.is("lost") {
				t.Errorf("the holder's context ended with %q, want lost", end.Text)
			}
			if late := ms(resumed, end.At); late > 5*time.Second {
				t.Errorf("the holder noticed %v after it ran again", late)
			}
			if stopped-end.Span.Until < int64(ttl/3) {
				bit.add()
			}
			oracle.add(end.Span)
			r.Until = guard(rival, 20*time.Millisecond, func() {})
			oracle.add(r)
			release(t, rival)
			if value, _, _ := reg.last(); value != "rival" {
				t.Errorf("the last write is of %q, want the rival's", value)
			}
		})
	})

	// hazard 2. The holder writes, and only its token keeps the write out.
	t.Run("limit between check and write", func(t *testing.T) {
		t.Parallel()
		trials(t, count(100), func(t *testing.T, n int) {
			key := fmt.Sprintf("checked:%d", n)
			reg := newRegister(t)
			c := newChild(t, plan{Addr: server.Addr, Name: "holder"})
			// A long lease does not expire between the check and the stop.
			lease, _ := c.acquire(order{Key: key, TTL: 4 * ttl})
			if check := c.await(c.send(order{Op: "check", Lease: lease}), "checked"); !check.OK {
				t.Fatal("the holder lost its lease at once")
			}
			c.pause()
			rival := acquire(t, rivals, key)
			if !reg.write(rival.Token(), "rival") {
				t.Error("the register refused the rival: its token is not newer")
			}
			c.resume()
			if wrote := c.await(c.send(order{Op: "write", Lease: lease, Register: reg.Addr}), "wrote"); wrote.OK {
				t.Error("the register took the stale write")
			}
			value, twin, refused := reg.last()
			if value != "rival" || refused != 1 {
				t.Errorf("the register has %q and refused %d writes, want the rival's and 1", value, refused)
			}
			// In a register that does not compare tokens, the rival's write is lost.
			if twin != "holder" {
				t.Errorf("the register without tokens has %q, want the loss of the rival's write", twin)
			}
			wantHeld(t, rival)
			release(t, rival)
		})
	})

	// hazard 1. No check reports that the lease is held after its expiry.
	t.Run("checks at the expiry", func(t *testing.T) {
		t.Parallel()
		leases := make([]*core.Lease, count(2000))
		for i := range leases {
			leases[i] = acquire(t, rivals, fmt.Sprintf("asked:%d", i), core.TTL(3*time.Second+time.Duration(i)*10*time.Millisecond), core.NoRenew())
		}
		for _, lease := range leases {
			askAtTheEnd(t, lease)
		}
	})
}

// askAtTheEnd checks from several goroutines, without a pause, whether a lease of fixed
// length is held while its time runs out.
func askAtTheEnd(t *testing.T, lease *core.Lease) {
	t.Helper()
	var deadline time.Time
	for took := time.Second; took > time.Millisecond/2; {
		// If the goroutine pauses during the call of Deadline, the returned deadline is
		// too early by the length of the pause. So a slow call is repeated.
		before := time.Now()
		deadline = lease.Deadline()
		took = time.Since(before)
	}
	time.Sleep(time.Until(deadline) - 2*time.Millisecond)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				at := time.Now()
				if lease.Context().Err() != nil {
					return
				}
				// Deadline reads two clocks one after the other, so its result is
				// inexact.
				if at.After(deadline.Add(time.Millisecond)) {
					t.Errorf("a check said held %v after the lease's time", at.Sub(deadline))
					return
				}
			}
		})
	}
	wg.Wait()
	wantLost(t, lease)
}
