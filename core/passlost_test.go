package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

func TestPassedOnAndLost(t *testing.T) {
	t.Parallel()
	// If a hold is lost before it is passed on, the release of its lease and the
	// release of the next lease report the loss.
	sim(t, "release after the loss", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 1)
		x.deleteHold()
		done := let(lease)
		next := x.take(1)
		wantErr(t, <-done, core.ErrLost)
		synctest.Wait()
		wantLost(t, next)
		wantErr(t, next.Release(t.Context()), core.ErrLost)
		time.Sleep(time.Minute)
		wantFree(t, store.inner, "order:1")
	})
	// The lease to which a lost hold was passed on is lost, and the hold is not passed
	// on again.
	sim(t, "next lease is lost", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 3)
		x.deleteHold()
		thief := stranger("order:1")
		thief.TTL = 10 * time.Second
		g, err := store.inner.Acquire(t.Context(), thief)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-let(lease), core.ErrLost)
		next := x.take(1)
		// This is the limit in hazard 62: the lease begins, and only the resource can
		// refuse its token.
		if next.Token() >= g.Token {
			t.Errorf("token %d, want less than %d, that of the holder", next.Token(), g.Token)
		}
		synctest.Wait()
		wantLost(t, next)
		wantErr(t, next.Release(t.Context()), core.ErrLost)
		time.Sleep(time.Second)
		if x.has(2) {
			t.Error("the next lease has a key that another one holds")
		}
		if err := store.inner.Release(t.Context(), thief); err != nil {
			t.Fatal(err)
		}
		release(t, x.take(2))
		release(t, x.take(3))
	})
	// Releases that wait while the answer "lost" is in flight return that answer.
	sim(t, "releases behind a lost answer", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 3)
		asked := 0
		store.set(func(ctx context.Context, n int, do func() error) error {
			if asked++; asked > 1 {
				return hang(ctx, n, do)
			}
			err := do()
			time.Sleep(5 * time.Millisecond) // in the meantime the other leases are released
			return err
		}, opExtend)
		x.deleteHold()
		var done []<-chan error
		for n := 1; n <= 3; n++ {
			done = append(done, let(lease))
			lease = x.take(n)
		}
		for _, d := range done {
			wantErr(t, <-d, core.ErrLost)
		}
		synctest.Wait()
		wantLost(t, lease)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		if asked != 1 {
			t.Errorf("asked %d times, want once", asked)
		}
	})
	// No lease begins with a hold that the process knows to be lost.
	sim(t, "hold known to be lost", func(t *testing.T) {
		l, store := setup(t)
		again := 0
		for range tally.AllTrials(2000) {
			store.forget()
			lease, x := row(t, l, store, 1)
			x.deleteHold()
			store.setAll(nil) // so that the answer can come before the next lease begins
			err := lease.Release(t.Context())
			next := x.take(1)
			synctest.Wait()
			alive, free := next.Context().Err() == nil, isFree(store.inner, "order:1")
			if alive {
				again++
			}
			if alive && free {
				t.Error("got a lease that the store does not have")
			}
			_ = next.Release(t.Context())
			time.Sleep(time.Second)
			if !errors.Is(err, core.ErrLost) {
				t.Errorf("the release before it: %v", err)
			}
			if t.Failed() {
				return
			}
		}
		fmt.Fprintln(t.Output(), again, "asked again")
	})
	// The second lease is released while the confirmation of the first lease's release is
	// in flight. If the hold was deleted before the second release, both releases
	// report the loss.
	sim(t, "release between loss and end", func(t *testing.T) {
		for _, deleted := range []bool{false, true} {
			l, store := setup(t)
			lease, x := row(t, l, store, 1)
			// The release overtakes the confirmation, which is an extension.
			store.set(func(ctx context.Context, n int, do func() error) error {
				time.Sleep(5 * time.Millisecond)
				return do()
			}, opExtend)
			done := let(lease)
			next := x.take(1)
			if deleted {
				x.deleteHold()
			}
			var want error
			if deleted {
				want = core.ErrLost
			}
			if err := next.Release(t.Context()); !errors.Is(err, want) {
				t.Errorf("deleted %t: the last release: %v", deleted, err)
			}
			if err := <-done; !errors.Is(err, want) {
				t.Errorf("deleted %t: the release before: %v", deleted, err)
			}
			wantFree(t, store.inner, "order:1")
		}
	})
	for name, f := range map[string]fault{
		"request lost": loseRequest, "reply lost": loseReply, "refused": refuse,
		"hang before": hang, "hang after": hangAfter, "late": late(time.Second),
	} {
		sim(t, "release that asks "+name, func(t *testing.T) {
			l, store := setup(t)
			lease, x := row(t, l, store, 2)
			store.set(f, opExtend)
			start := time.Now()
			done := let(lease)
			next := x.take(1)
			if !time.Now().Equal(start) {
				t.Errorf("the next one waited for %v", time.Since(start))
			}
			wantErr(t, <-done, core.ErrUnavailable)
			if took := time.Since(start); took > 3500*time.Millisecond {
				t.Errorf("the release took %v", took)
			}
			// The hold is no longer passed on. The next caller acquires its own hold.
			store.set(nil, opExtend)
			done = let(next)
			last := x.take(2)
			wantErr(t, <-done, nil)
			if store.count(opRelease) == 0 {
				t.Error("a hold that the store did not confirm was passed on")
			}
			time.Sleep(time.Minute)
			wantHeldLease(t, last)
			release(t, last)
			wantFree(t, store.inner, "order:1")
		})
		sim(t, "next question after "+name, func(t *testing.T) {
			l, store := setup(t)
			lease, x := row(t, l, store, 1)
			store.set(first(1, f), opExtend)
			done := let(lease)
			next := x.take(1)
			wantErr(t, <-done, nil)
			wantHeldLease(t, next)
			release(t, next)
			wantFree(t, store.inner, "order:1")
			time.Sleep(5 * time.Second) // the late calls arrive
		})
	}
	// A waiter can give up at the moment at which a hold is passed on to it. The next
	// waiter then gets the key soon, and no hold is left.
	sim(t, "waiter leaves at the pass", func(t *testing.T) {
		l, store := setup(t)
		gone, stayed := 0, 0
		n := tally.Trials(30_000)
		for range n {
			store.forget()
			ctx, cancel := context.WithCancel(t.Context())
			first, x := rowBefore(t, l, store, func(x *waiting) {
				x.wait(ctx)
				x.wait(t.Context())
			})
			store.setAll(jitter(200 * time.Microsecond))
			var done <-chan error
			switch rand.N(3) {
			case 0:
				cancel()
				done = let(first)
			case 1:
				go cancel()
				done = let(first)
			default:
				done = let(first)
				runtime.Gosched()
				cancel()
			}
			if lease := <-x.got[1]; lease != nil {
				stayed++
				release(t, lease)
			} else {
				gone++
			}
			start := time.Now()
			last := x.take(2)
			if took := time.Since(start); took > time.Second {
				t.Fatalf("the one behind had the key after %v", took)
			}
			release(t, last)
			wantErr(t, <-done, nil)
			time.Sleep(10 * time.Millisecond)
			wantFree(t, store.inner, "order:1")
		}
		if gone < min(100, n/10) || stayed < min(100, n/10) {
			t.Errorf("test setup: got %d that left and %d that stayed", gone, stayed)
		}
	})
	sim(t, "released by Close", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 2)
		release(t, lease)
		lease = x.take(1)
		closed := make(chan error, 1)
		go func() { closed <- l.Close(t.Context()) }()
		synctest.Wait()
		release(t, lease)
		wantErr(t, <-closed, nil)
		wantFree(t, store.inner, "order:1")
	})
	// A hold is not passed on to a caller that Close has refused.
	sim(t, "waiter refused by Close", func(t *testing.T) {
		l, store := setup(t)
		slow := &slowContext{Context: context.Background(), goOn: make(chan struct{})}
		lease, x := rowBefore(t, l, store, func(x *waiting) { x.wait(slow) })
		slow.waits.Store(true)
		goOn := sync.OnceFunc(func() { close(slow.goOn) })
		defer goOn()
		closed := make(chan error, 1)
		go func() { closed <- l.Close(t.Context()) }()
		synctest.Wait() // the caller has got its error, and is still in the queue
		if x.has(1) {
			t.Fatal("test setup: got a caller that left the queue")
		}
		release(t, lease)
		wantFree(t, store.inner, "order:1")
		goOn()
		wantErr(t, <-closed, nil)
	})
	for name, change := range map[string]func(l *core.Locker) <-chan error{
		"Locker is closing": func(l *core.Locker) <-chan error {
			closed := make(chan error, 1)
			go func() { closed <- l.Close(context.Background()) }()
			synctest.Wait()
			return closed
		},
		"pass time expired": func(*core.Locker) <-chan error { time.Sleep(20 * time.Millisecond); return nil },
	} {
		sim(t, "hold not taken "+name, func(t *testing.T) {
			l, store := setup(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			slow := &slowContext{Context: ctx, goOn: make(chan struct{})}
			next := &slowContext{Context: context.Background(), goOn: make(chan struct{})}
			goOn := sync.OnceFunc(func() { close(next.goOn) })
			defer goOn()
			lease, x := rowBefore(t, l, store, func(x *waiting) { x.wait(slow); x.wait(next) })
			slow.waits.Store(true)
			next.waits.Store(true)
			cancel()
			synctest.Wait() // the first waiter was woken, and is still in the queue
			release(t, lease)
			if store.count(opRelease) != 0 {
				t.Fatal("test setup: got no hold passed on")
			}
			closed := change(l)
			asked := store.count(opAcquire)
			close(slow.goOn)
			if lease := <-x.got[1]; lease != nil {
				t.Fatal("test setup: got the hold taken by the first one")
			}
			time.Sleep(10 * trip)
			if store.count(opRelease) == 0 {
				t.Error("the hold was not released")
			}
			goOn()
			if closed != nil {
				wantErr(t, <-closed, nil)
				return
			}
			release(t, x.take(2))
			if store.count(opAcquire) == asked {
				t.Error("the next one has not asked the store")
			}
		})
	}
	// A hold whose confirmation panicked is not passed on again.
	sim(t, "confirmation that panicked", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 2)
		store.set(first(1, func(context.Context, int, func() error) error { panic("store") }), opExtend)
		panicked := make(chan bool, 1)
		go func() { panicked <- recovered(func() { _ = lease.Release(context.Background()) }) }()
		next := x.take(1)
		if !<-panicked {
			t.Error("test setup: got no panic")
		}
		done := let(next)
		last := x.take(2)
		wantErr(t, <-done, nil)
		if store.count(opRelease) == 0 {
			t.Error("a hold that the store did not confirm was passed on")
		}
		release(t, last)
		wantFree(t, store.inner, "order:1")
	})
}

type slowContext struct {
	context.Context
	waits atomic.Bool
	goOn  chan struct{} // Err blocks until goOn is closed
}

func (c *slowContext) Err() error {
	if c.waits.Load() {
		<-c.goOn
	}
	return c.Context.Err()
}
