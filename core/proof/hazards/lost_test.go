package hazards_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestLostReplies checks operations whose replies are lost or late, and an acquire that
// arrives after its clean-up.
func TestLostReplies(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	s := newSite(t)
	scenes := []struct {
		name   string
		trials int
		play   func(t *testing.T, r *rig, n int)
	}{
		// hazard 7. The caller gets the lock.
		{"reply to an acquire lost", 2 * count(50), lostAcquire},
		// hazard 8. The lock is released.
		{"reply after the context is done", count(100), lateAcquire},
		// hazard 9. The acquire is refused.
		{"acquire after its clean-up", count(50), overtakenAcquire},
		// hazard 10. The lease is not lost.
		{"one reply to extensions lost", count(100), lostExtension},
		// hazard 10. The lease is lost before the key can expire.
		{"all replies to extensions lost", count(100), lostExtensions},
		// hazard 11. The key is free.
		{"reply to a release lost", count(50), lostRelease},
		// hazard 12. The key is free after three releases.
		{"reply to a re-entry lost", 2 * count(50), lostReentry},
	}
	for i, scene := range scenes {
		t.Run(scene.name, func(t *testing.T) {
			t.Parallel()
			trials(t, scene.trials, func(t *testing.T, n int) {
				scene.play(t, s.rig(t, fmt.Sprintf("lost:%d:%d", i, n), n), n)
			})
		})
	}
}

func lostAcquire(t *testing.T, r *rig, n int) {
	// If the last token is ahead of the server's clock, the next token is greater by
	// store.TokenStep.
	last := uint64(time.Now().Add(time.Hour).UnixMicro())
	if err := r.asks.Set(t.Context(), stored(r.key), "f\tt "+strconv.FormatUint(last, 10), time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	fault := r.inject("acquire", lossOf(n))
	lease := acquire(t, r.locker, r.key, core.TTL(6*time.Second))
	if r.proxy.Times(fault) != 1 {
		t.Fatal("test setup: no reply was lost")
	}
	if holds := r.asks.holds(r.key); holds != 1 || lease.Token() != last+store.TokenStep {
		t.Errorf("%d holds and token %d, want one and %d", holds, lease.Token(), last+store.TokenStep)
	}
	if busy := r.events.all(core.Busy); len(busy) > 0 {
		t.Error("our own lock was reported as busy")
	}
	wantBusy(t, r.direct, r.key)
	release(t, lease)
	next := acquire(t, r.direct, r.key, core.Wait(0))
	if next.Token() != last+2*store.TokenStep {
		t.Errorf("the next token is %d, want %d", next.Token(), last+2*store.TokenStep)
	}
	release(t, next)
}

func lateAcquire(t *testing.T, r *rig, _ int) {
	fault := r.inject("acquire", testserver.HoldReply)
	defer fault.Deliver()
	const limit = 3 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	done := make(chan error, 1)
	start := mono()
	go func() {
		_, err := r.locker.Acquire(ctx, r.key, core.TTL(30*time.Second))
		done <- err
	}()
	testserver.Eventually(t, limit, "the server has granted it", func() bool { return r.asks.holds(r.key) == 1 })
	r.proxy.Partition()
	err := <-done
	if took := time.Duration(mono() - start); took > limit+5*time.Second {
		t.Errorf("the acquire returned after %v, its context ended after %v", took, limit)
	}
	wantErr(t, "acquire", err, core.ErrUnavailable, context.DeadlineExceeded)
	if errors.Is(err, core.ErrBusy) {
		t.Errorf("our own lock was reported as busy: %v", err)
	}
	if r.asks.holds(r.key) != 1 {
		t.Error("test setup: the lock was released through a partition")
	}
	r.proxy.Heal()
	r.asks.awaitFree(r.key, 10*time.Second)
	wantFree(t, r.direct, r.key)
}

func overtakenAcquire(t *testing.T, r *rig, _ int) {
	fault := r.inject("acquire", testserver.HoldRequest)
	defer fault.Deliver()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-fault.Fired()
		cancel()
	}()
	_, err := r.locker.Acquire(ctx, r.key, core.TTL(30*time.Second))
	wantErr(t, "acquire", err, core.ErrUnavailable, context.Canceled)
	r.tap.awaitCalls("release", r.key, 1)
	if len(r.tap.calls("acquire", r.key)) != 0 {
		t.Fatal("test setup: the acquire was not late")
	}
	fault.Deliver()
	r.tap.awaitCalls("acquire", r.key, 1)
	wantFree(t, r.direct, r.key)
	if r.asks.holds(r.key) != 0 {
		t.Error("the late acquire was granted")
	}
}

func lostExtension(t *testing.T, r *rig, n int) {
	fault := r.inject("extend", lossOf(n))
	lease := acquire(t, r.locker, r.key, core.TTL(4*time.Second))
	r.tap.awaitCalls("extend", r.key, 4)
	wantHeld(t, lease)
	if r.proxy.Times(fault) != 1 || len(r.events.all(core.ExtendFailed)) == 0 {
		t.Error("test setup: no reply was lost")
	}
	release(t, lease)
	wantFree(t, r.direct, r.key)
}

func lostExtensions(t *testing.T, r *rig, n int) {
	fault := r.injectAll("extend", lossOf(n), -1)
	lease := acquire(t, r.locker, r.key, core.TTL(3*time.Second))
	hold := r.asks.hold(r.key)
	granted := mono()
	late := lateness(t)
	end := ended(t, lease)
	expiry := r.asks.expiry(r.key, hold)
	wantLost(t, lease)
	if end >= expiry {
		t.Errorf("the context ended %v after the key could expire", ms(expiry, end))
	}
	if got := ms(granted, end); got > 3*time.Second+late() {
		t.Errorf("the lease was trusted for %v, although nothing confirmed an extension", got)
	}
	if r.proxy.Times(fault) < 2 {
		t.Error("test setup: fewer than two replies were lost")
	}
	wantErr(t, "release of a lost lease", lease.Release(t.Context()), core.ErrLost)
	r.asks.awaitFree(r.key, 10*time.Second)
	wantFree(t, r.direct, r.key)
}

func lostRelease(t *testing.T, r *rig, n int) {
	lease := acquire(t, r.locker, r.key, core.TTL(30*time.Second))
	next, fails := make(chan *core.Lease, 1), make(chan error, 1)
	go func() {
		l, err := r.direct.Acquire(context.Background(), r.key, core.Wait(patience))
		fails <- err
		next <- l
	}()
	testserver.Eventually(t, patience, "a claim waits", func() bool { return r.asks.waiters(r.key) == 1 })
	fault := r.inject("release", lossOf(n))
	release(t, lease)
	if r.proxy.Times(fault) != 1 {
		t.Error("test setup: no reply was lost")
	}
	if err := <-fails; err != nil {
		t.Fatalf("the waiter: %v", err)
	}
	l := <-next
	r.tap.catchUp(r.asks)
	if n := r.tap.wakeUps(r.key); n != 1 {
		t.Errorf("%d wake-ups for one waiter", n)
	}
	wantHeld(t, l)
	release(t, l)
	wantFree(t, r.direct, r.key)
}

func lostReentry(t *testing.T, r *rig, n int) {
	leases := []*core.Lease{acquire(t, r.locker, r.key, core.TTL(6*time.Second))}
	for depth := range 2 {
		fault := r.inject("acquire", lossOf(n+2*depth))
		outer := leases[depth]
		leases = append(leases, acquireUnder(t, outer.Context(), r.locker, r.key, core.TTL(6*time.Second)))
		if r.proxy.Times(fault) != 1 {
			t.Error("test setup: no reply was lost")
		}
		if got := leases[depth+1].Token(); got != outer.Token() {
			t.Errorf("the nested lease has token %d, want %d", got, outer.Token())
		}
	}
	if holds := r.asks.holds(r.key); holds != 3 {
		t.Errorf("there are %d holds, want 3", holds)
	}
	// The trials release the three leases in three different orders.
	if n%3 == 0 {
		leases[0], leases[2] = leases[2], leases[0]
	}
	if n%3 == 1 {
		leases[0], leases[1] = leases[1], leases[0]
	}
	for i, lease := range leases {
		wantBusy(t, r.direct, r.key)
		release(t, lease)
		if holds := r.asks.holds(r.key); holds != 2-i {
			t.Errorf("there are %d holds after %d releases of three", holds, i+1)
		}
	}
	wantFree(t, r.direct, r.key)
}

// lateness returns a function that returns the longest delay of a timer since the call
// of lateness. Such a delay shows a busy process or machine.
func lateness(t *testing.T) func() time.Duration {
	var most atomic.Int64
	go func() {
		const step = 5 * time.Millisecond
		for t.Context().Err() == nil {
			start := time.Now()
			time.Sleep(step)
			most.Store(max(most.Load(), int64(time.Since(start)-step)))
		}
	}()
	return func() time.Duration { return time.Duration(most.Load()) }
}
