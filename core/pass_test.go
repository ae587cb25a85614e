package core_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
)

// trip is the duration of one call to the store in these tests.
const trip = 100 * time.Microsecond

// waiting has the callers that wait for a key behind a lease of their process.
type waiting struct {
	t     *testing.T
	l     *core.Locker
	store *scripted
	got   []chan *core.Lease
}

// row acquires a lease, and starts n callers that wait behind it.
func row(t *testing.T, l *core.Locker, store *scripted, n int, o ...core.AcquireOption) (*core.Lease, *waiting) {
	t.Helper()
	return rowBefore(t, l, store, func(x *waiting) {
		for range n {
			x.wait(t.Context(), o...)
		}
	}, o...)
}

// rowBefore acquires a lease, and calls come, which adds the callers that wait behind
// the lease. After that each call to the store takes a trip.
func rowBefore(t *testing.T, l *core.Locker, store *scripted, come func(x *waiting), o ...core.AcquireOption) (*core.Lease, *waiting) {
	t.Helper()
	store.setAll(nil)
	x := &waiting{t: t, l: l, store: store, got: []chan *core.Lease{nil}}
	first := acquire(t, t.Context(), l, "order:1", o...)
	come(x)
	store.setAll(slow(trip/2, trip/2))
	return first, x
}

// wait puts one more caller in the queue.
func (x *waiting) wait(ctx context.Context, o ...core.AcquireOption) {
	x.t.Helper()
	got := make(chan *core.Lease, 1)
	x.got = append(x.got, got)
	go func() {
		lease, err := x.l.Acquire(ctx, "order:1", o...)
		if err != nil && ctx.Err() == nil && !errors.Is(err, core.ErrClosed) {
			x.t.Errorf("Acquire: %v", err)
		}
		got <- lease
	}()
	synctest.Wait()
}

// take waits for the lease of the nth caller, and returns the lease. A confirmation of
// the lease's hold may still be in flight.
func (x *waiting) take(n int) *core.Lease {
	x.t.Helper()
	lease := <-x.got[n]
	synctest.Wait()
	if lease == nil {
		x.t.Fatal("no lease")
	}
	return lease
}

func (x *waiting) has(n int) bool {
	synctest.Wait()
	return len(x.got[n]) > 0
}

// let releases a lease in the background.
func let(lease *core.Lease) <-chan error {
	done := make(chan error, 1)
	go func() { done <- lease.Release(context.Background()) }()
	return done
}

// deleteHold deletes the hold at the store, as an operator or a failover can.
func (x *waiting) deleteHold() {
	x.t.Helper()
	hold := x.store.sent(opAcquire)[0].claims[0]
	if err := x.store.inner.Release(context.Background(), hold); err != nil {
		x.t.Fatalf("the store does not have the hold: %v", err)
	}
}

func TestPassingOn(t *testing.T) {
	t.Parallel()
	// The next lease begins as soon as the lease before it is released, and no call is
	// sent to the store in between.
	sim(t, "next without a call", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 5)
		for n := 1; n <= 5; n++ {
			calls, now := store.count(opAcquire, opRelease), time.Now()
			done := let(lease)
			next := x.take(n)
			if !time.Now().Equal(now) || store.count(opAcquire, opRelease) != calls {
				t.Errorf("lease %d began after %v and %d calls", n, time.Since(now), store.count(opAcquire, opRelease)-calls)
			}
			if lease.Context().Err() == nil {
				t.Error("got a lease before it that is not done")
			}
			if next.Token() != lease.Token()+1 {
				t.Errorf("token %d came after %d", next.Token(), lease.Token())
			}
			wantHeldLease(t, next)
			wantErr(t, <-done, nil)
			wantHeld(t, store.inner, "order:1")
			lease = next
		}
		token := lease.Token()
		release(t, lease)
		wantFree(t, store.inner, "order:1")
		if last := store.sent(opRelease)[0].claims[0].Last; last != token {
			t.Errorf("the last token is %d, and the release says %d", token, last)
		}
		after := acquire(t, t.Context(), l, "order:1")
		if after.Token() <= token {
			t.Errorf("token %d came after %d", after.Token(), token)
		}
		release(t, after)
	})
	// Leases that are released while a confirmation is in flight share the next answer.
	sim(t, "shared answer", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 9)
		calls := store.count()
		var done []<-chan error
		for n := 1; n <= 9; n++ {
			done = append(done, let(lease))
			lease = x.take(n)
		}
		for _, d := range done {
			wantErr(t, <-d, nil)
		}
		if n := store.count(opExtend); store.count()-calls != 2 || n != 2 {
			t.Errorf("%d calls for nine releases, want two that extend", store.count()-calls)
		}
		release(t, lease)
	})
	// A hold serves as many leases as it has tokens, so it is passed on 63 times
	// (store.TokenStep - 1). The next waiter after that asks the store.
	sim(t, "as many leases as tokens", func(t *testing.T) {
		l, s := setup(t)
		const waiters = 3*store.TokenStep - 1
		lease, x := row(t, l, s, waiters)
		seen := map[uint64]bool{}
		for n := 1; n <= waiters; n++ {
			if seen[lease.Token()] {
				t.Errorf("token %d twice", lease.Token())
			}
			seen[lease.Token()] = true
			done := let(lease)
			lease = x.take(n)
			_ = done
		}
		release(t, lease)
		if n := s.count(opRelease); n != 3 {
			t.Errorf("%d releases at the store for %d leases, want 3", n, waiters+1)
		}
	})
	// A lease whose hold was passed on to it is extended as long as the lease is held.
	sim(t, "each lease is extended", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 1, core.TTL(3*time.Second))
		release(t, lease)
		lease = x.take(1)
		time.Sleep(time.Hour)
		wantHeldLease(t, lease)
		wantHeld(t, store.inner, "order:1")
		release(t, lease)
		wantFree(t, store.inner, "order:1")
	})
	// MaxHold counts from the beginning of the lease, and not from the grant of its
	// hold.
	sim(t, "MaxHold of the lease", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 1, core.TTL(3*time.Second), core.MaxHold(time.Second))
		release(t, lease)
		lease = x.take(1)
		start := time.Now()
		if took := lossTime(t, lease).Sub(start); took < 2500*time.Millisecond || took > 5*time.Second {
			t.Errorf("lost after %v", took)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
	for name, o := range map[string]core.AcquireOption{
		"TTL": core.TTL(10 * time.Second), "NoRenew": core.NoRenew(), "Fair": core.Fair(),
		"Shared": core.Shared(), "KeepFor": core.KeepFor(time.Second), "Also": core.Also("order:2"),
	} {
		sim(t, "not passed to a "+name, func(t *testing.T) {
			l, store := setup(t)
			lease, x := rowBefore(t, l, store, func(x *waiting) { x.wait(t.Context(), o) })
			done := let(lease)
			next := x.take(1)
			if store.count(opRelease) == 0 {
				t.Error("got the hold passed on")
			}
			wantErr(t, <-done, nil)
			release(t, next)
		})
		sim(t, "kept by a lease with "+name, func(t *testing.T) {
			l, store := setup(t)
			lease, x := rowBefore(t, l, store, func(x *waiting) { x.wait(t.Context()) }, o)
			done := let(lease)
			time.Sleep(2 * time.Second)
			next := x.take(1)
			if store.count(opRelease) == 0 {
				t.Error("got the hold passed on")
			}
			wantErr(t, <-done, nil)
			release(t, next)
		})
	}
	for name, change := range map[string]func(x *waiting, lease *core.Lease){
		"shown owner": func(_ *waiting, lease *core.Lease) { lease.Owner() },
		"extended by its caller": func(x *waiting, lease *core.Lease) {
			wantErr(x.t, lease.Extend(x.t.Context(), time.Minute), nil)
		},
		"failed Extend of its caller": func(x *waiting, lease *core.Lease) {
			x.store.set(loseReply, opExtend)
			wantErr(x.t, lease.Extend(x.t.Context(), time.Minute), core.ErrUnavailable)
			x.store.set(slow(trip/2, trip/2), opExtend)
		},
		"older than its MaxHold": func(*waiting, *core.Lease) { time.Sleep(3 * time.Millisecond) },
	} {
		sim(t, "not passed on "+name, func(t *testing.T) {
			l, store := setup(t)
			lease, x := row(t, l, store, 1, core.MaxHold(2*time.Millisecond))
			change(x, lease)
			done := let(lease)
			next := x.take(1)
			if store.count(opRelease) == 0 {
				t.Error("got the hold passed on")
			}
			wantErr(t, <-done, nil)
			release(t, next)
		})
	}
	// If an attempt of a lease's acquire had no answer, the lease's hold is not passed
	// on.
	sim(t, "not passed on unanswered attempt", func(t *testing.T) {
		l, store := setup(t)
		store.set(first(1, loseReply), opAcquire)
		lease := acquire(t, t.Context(), l, "order:1")
		x := &waiting{t: t, l: l, store: store, got: []chan *core.Lease{nil}}
		x.wait(t.Context())
		done := let(lease)
		next := x.take(1)
		time.Sleep(time.Second)
		if store.count(opRelease) < 2 { // the second release leaves a tombstone
			t.Errorf("%d releases", store.count(opRelease))
		}
		wantErr(t, <-done, nil)
		release(t, next)
	})
	// A hold that joined another hold is not passed on.
	sim(t, "not passed on joined hold", func(t *testing.T) {
		l, store := setup(t)
		outer := acquire(t, t.Context(), l, "order:1")
		lease := acquire(t, core.ContextWithOwner(t.Context(), outer.Owner()), l, "order:1")
		x := &waiting{t: t, l: l, store: store, got: []chan *core.Lease{nil}}
		x.wait(t.Context())
		release(t, lease)
		time.Sleep(time.Second)
		if x.has(1) {
			t.Error("two holders")
		}
		wantHeldLease(t, outer)
		release(t, outer)
		release(t, x.take(1))
	})
	// A hold whose last confirmation is too old is released and not passed on.
	sim(t, "old confirmation", func(t *testing.T) {
		for _, ttl := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond} {
			l, store := setup(t)
			lease, x := row(t, l, store, 2, core.TTL(ttl))
			most := ttl / 50
			time.Sleep(most - 2*trip)
			wantErr(t, <-let(lease), nil)
			lease = x.take(1)
			if n := store.count(opRelease); n != 0 {
				t.Errorf("TTL %v: asked %v after the last answer", ttl, most-2*trip)
			}
			if left := time.Until(lease.Deadline()); left < core.Trust(ttl)-most {
				t.Errorf("TTL %v: the lease has %v left", ttl, left)
			}
			time.Sleep(most + trip)
			wantErr(t, <-let(lease), nil)
			lease = x.take(2)
			if n := store.count(opRelease); n != 1 {
				t.Errorf("TTL %v: not asked %v after the last answer", ttl, most)
			}
			release(t, lease)
		}
	})
	// A hold is not passed on to a caller that has asked the store. The store may
	// remember that caller's claim.
	sim(t, "waiter that asked the store", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 0)
		time.Sleep(20 * time.Millisecond) // the hold is no longer passed on
		asked := store.count(opAcquire)
		x.wait(t.Context())
		time.Sleep(10 * trip)
		if store.count(opAcquire) == asked {
			t.Fatal("test setup: got no question of the waiter")
		}
		done := let(lease)
		next := x.take(1)
		wantErr(t, <-done, nil)
		if n := store.count(opRelease); n != 1 {
			t.Errorf("%d releases at the store, want 1", n)
		}
		release(t, next)
		wantFree(t, store.inner, "order:1")
	})
	// A waiter of another process gets the key after at most about two holds, although
	// this process passes its holds on.
	sim(t, "waiter elsewhere", func(t *testing.T) {
		l, s := setup(t)
		other := newLocker(t, s.inner)
		events := &recorder{}
		l2 := newLocker(t, s, core.WithObserver(events))
		_ = l
		s.setAll(slow(trip/2, trip/2))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = l2.Do(ctx, "order:1", func(context.Context) error {
						time.Sleep(10 * time.Microsecond)
						return nil
					})
				}
			})
		}
		for range tally.Trials(500) {
			time.Sleep(rand.N(5 * time.Millisecond))
			before := len(events.all(core.Acquired))
			lease := acquire(t, t.Context(), other, "order:1")
			if n := len(events.all(core.Acquired)) - before; n > 2*store.TokenStep+2 {
				t.Errorf("%d leases were granted to others meanwhile", n)
			}
			release(t, lease)
		}
		stop()
		wg.Wait()
	})
}
