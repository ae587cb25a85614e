package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

// trip is how long a call takes in these tests.
const trip = 100 * time.Microsecond

// tenants are leases of one process that follow each other under one hold at the
// store. The first was handed its key by the store; whoever comes after it waits
// already.
type tenants struct {
	t     *testing.T
	l     *core.Locker
	store *scripted
	got   []chan *core.Lease
}

// tenure has a first tenant, and n who wait behind it.
func tenure(t *testing.T, l *core.Locker, store *scripted, n int, o ...core.AcquireOption) (*core.Lease, *tenants) {
	t.Helper()
	return tenureBefore(t, l, store, func(x *tenants) {
		for range n {
			x.wait(t.Context(), o...)
		}
	}, o...)
}

// tenureBefore has a first tenant, and behind it whoever come puts in line.
func tenureBefore(t *testing.T, l *core.Locker, store *scripted, come func(x *tenants), o ...core.AcquireOption) (*core.Lease, *tenants) {
	t.Helper()
	store.setAll(nil)
	x := &tenants{t: t, l: l, store: store}
	opener := acquire(t, t.Context(), l, "order:1", o...)
	x.wait(t.Context(), o...)
	come(x)
	store.setAll(slow(trip/2, trip/2))
	release(t, opener)
	first := x.take(0)
	if h := store.count(opHandover); h != 1 {
		t.Fatalf("the first tenant came by %d hand-overs", h)
	}
	return first, x
}

// wait puts one more in line, and takes returns what the nth got.
func (x *tenants) wait(ctx context.Context, o ...core.AcquireOption) {
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

func (x *tenants) take(n int) *core.Lease {
	x.t.Helper()
	lease := <-x.got[n]
	if lease == nil {
		x.t.Fatal("no lease")
	}
	return lease
}

// has reports whether the nth got its lease by now.
func (x *tenants) has(n int) bool {
	synctest.Wait()
	return len(x.got[n]) > 0
}

// let releases a lease in the background.
func let(lease *core.Lease) <-chan error {
	done := make(chan error, 1)
	go func() { done <- lease.Release(context.Background()) }()
	return done
}

// delete has the store forget the hold, as an operator or a failover might.
func (x *tenants) deleteHold() {
	x.t.Helper()
	hold := x.store.sent(opHandover)[0].claims[1]
	if err := x.store.inner.Release(context.Background(), hold); err != nil {
		x.t.Fatalf("the store does not have the hold: %v", err)
	}
}

func TestTenure(t *testing.T) {
	t.Parallel()
	sim(t, "the next one begins when the one before it ends, and no call is made between", func(t *testing.T) {
		l, store := setup(t)
		lease, x := tenure(t, l, store, 5)
		for n := 1; n <= 5; n++ {
			calls, now := store.count(opAcquire, opHandover, opRelease), time.Now()
			done := let(lease)
			next := x.take(n)
			if !time.Now().Equal(now) || store.count(opAcquire, opHandover, opRelease) != calls {
				t.Errorf("tenant %d began after %v and %d calls", n, time.Since(now), store.count(opAcquire, opHandover, opRelease)-calls)
			}
			if lease.Context().Err() == nil {
				t.Error("the one before has not ended")
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
		after := acquire(t, t.Context(), l, "order:1")
		if after.Token() <= token {
			t.Errorf("token %d came after %d", after.Token(), token)
		}
		release(t, after)
	})
	sim(t, "those that end while the store is asked share the next answer", func(t *testing.T) {
		l, store := setup(t)
		lease, x := tenure(t, l, store, 9)
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
	sim(t, "the tenure is as long as a chain is, and then the store is asked", func(t *testing.T) {
		l, store := setup(t)
		lease, x := tenure(t, l, store, 40)
		seen := map[uint64]bool{}
		for n := 1; n <= 40; n++ {
			if seen[lease.Token()] {
				t.Errorf("token %d twice", lease.Token())
			}
			seen[lease.Token()] = true
			done := let(lease)
			lease = x.take(n)
			_ = done
		}
		// The opener, 14 after the first, and then rows of 16.
		if n := store.count(opHandover); n != 3 {
			t.Errorf("%d hand-overs at the store for 41, want 3", n)
		}
		release(t, lease)
	})
	sim(t, "each lease is extended, for as long as it is held", func(t *testing.T) {
		l, store := setup(t)
		lease, x := tenure(t, l, store, 1, core.TTL(3*time.Second))
		release(t, lease)
		lease = x.take(1)
		time.Sleep(time.Hour)
		wantHeldLease(t, lease)
		wantHeld(t, store.inner, "order:1")
		release(t, lease)
		wantFree(t, store.inner, "order:1")
	})
	sim(t, "a lease that nobody follows ends with its process", func(t *testing.T) {
		l, store := setup(t)
		lease, x := tenure(t, l, store, 1, core.TTL(3*time.Second), core.MaxHold(time.Second))
		release(t, lease)
		lease = x.take(1)
		start := time.Now()
		if took := lossTime(t, lease).Sub(start); took < 2500*time.Millisecond || took > 5*time.Second {
			t.Errorf("lost after %v", took)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
	for name, o := range map[string]core.AcquireOption{
		"another TTL": core.TTL(10 * time.Second), "a lease that is not extended": core.NoRenew(),
	} {
		sim(t, "the store is asked for "+name, func(t *testing.T) {
			l, store := setup(t)
			lease, x := tenureBefore(t, l, store, func(x *tenants) { x.wait(t.Context(), o) })
			calls := store.count(opHandover, opRelease)
			done := let(lease)
			next := x.take(1)
			if store.count(opHandover, opRelease) == calls {
				t.Error("it was not")
			}
			wantErr(t, <-done, nil)
			release(t, next)
		})
	}
	sim(t, "the store is asked when it was not for a while", func(t *testing.T) {
		for _, ttl := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond} {
			l, store := setup(t)
			lease, x := tenure(t, l, store, 2, core.TTL(ttl))
			most := ttl / 50
			time.Sleep(most - 2*trip)
			wantErr(t, <-let(lease), nil)
			lease = x.take(1)
			if n := store.count(opHandover); n != 1 {
				t.Errorf("TTL %v: asked %v after the last answer", ttl, most-2*trip)
			}
			if left := time.Until(lease.Deadline()); left < core.Trust(ttl)-most {
				t.Errorf("TTL %v: the lease has %v left", ttl, left)
			}
			time.Sleep(most + trip)
			wantErr(t, <-let(lease), nil)
			lease = x.take(2)
			if n := store.count(opHandover); n != 2 {
				t.Errorf("TTL %v: not asked %v after the last answer", ttl, most)
			}
			release(t, lease)
		}
	})
	sim(t, "who has asked the store is not given a hold as it is", func(t *testing.T) {
		// The store may remember its claim, which a hand-over takes away.
		l, store := setup(t)
		lease, x := tenure(t, l, store, 0)
		asked := store.count(opAcquire)
		x.wait(t.Context())
		time.Sleep(10 * trip)
		if store.count(opAcquire) == asked {
			t.Fatal("vacuous: it has not asked")
		}
		handovers := store.count(opHandover)
		done := let(lease)
		next := x.take(1)
		wantErr(t, <-done, nil)
		if n := store.count(opHandover) - handovers; n != 1 {
			t.Errorf("%d hand-overs at the store, want 1", n)
		}
		release(t, next)
		wantFree(t, store.inner, "order:1")
	})
	sim(t, "who waits elsewhere is served soon", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		events := &recorder{}
		l2 := newLocker(t, store, core.WithObserver(events))
		_ = l
		store.setAll(slow(trip/2, trip/2))
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = l2.Do(ctx, "order:1", func(context.Context) error {
						time.Sleep(10 * time.Microsecond)
						return nil
					})
				}
			})
		}
		for range 200 {
			time.Sleep(rand.N(5 * time.Millisecond))
			before := len(events.all(core.Acquired))
			lease := acquire(t, t.Context(), other, "order:1")
			if n := len(events.all(core.Acquired)) - before; n > 36 {
				t.Errorf("%d leases were granted to others meanwhile", n)
			}
			release(t, lease)
		}
		stop()
		wg.Wait()
	})
}

func TestTenureIsLost(t *testing.T) {
	t.Parallel()
	sim(t, "a release tells that the hold was lost, and the next one is told too", func(t *testing.T) {
		l, store := setup(t)
		lease, x := tenure(t, l, store, 1)
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
	sim(t, "a hold that is lost is not passed on", func(t *testing.T) {
		l, store := setup(t)
		lease, x := tenure(t, l, store, 3)
		x.deleteHold()
		thief := stranger("order:1")
		thief.TTL = 10 * time.Second
		g, err := store.inner.Acquire(t.Context(), thief)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-let(lease), core.ErrLost)
		next := x.take(1)
		// The limit of hazard 62: it began, and the resource refuses its token.
		if next.Token() >= g.Token {
			t.Errorf("token %d, want less than the %d of who has the key", next.Token(), g.Token)
		}
		synctest.Wait()
		wantLost(t, next)
		wantErr(t, next.Release(t.Context()), core.ErrLost)
		time.Sleep(time.Second)
		if x.has(2) {
			t.Error("the next one has a key that somebody else holds")
		}
		if err := store.inner.Release(t.Context(), thief); err != nil {
			t.Fatal(err)
		}
		release(t, x.take(2))
		release(t, x.take(3))
	})
	sim(t, "nobody begins under a hold that is known to be lost", func(t *testing.T) {
		l, store := setup(t)
		anew := 0
		for range 2_000 {
			store.forget()
			lease, x := tenure(t, l, store, 1)
			x.deleteHold()
			store.setAll(nil) // so that the answer may be there before the next one begins
			err := lease.Release(t.Context())
			next := x.take(1)
			synctest.Wait()
			alive, free := next.Context().Err() == nil, isFree(store.inner, "order:1")
			if alive {
				anew++
			}
			if alive && free {
				t.Error("a lease goes on that the store has nothing of")
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
		fmt.Fprintln(t.Output(), anew, "asked anew")
	})
	sim(t, "a release that comes after the loss and before the end of another says so", func(t *testing.T) {
		// The question is on its way when the hold is released for good: its
		// answer is that of the release.
		for _, deleted := range []bool{false, true} {
			l, store := setup(t)
			lease, x := tenure(t, l, store, 1)
			// An extension that is overtaken by the release.
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
		"the request is lost": loseRequest, "the reply is lost": loseReply, "it is refused": refuse,
		"the store hangs before it": hang, "the store hangs after it": hangAfter, "it comes late": late(time.Second),
	} {
		sim(t, "when "+name+", a release that asks fails in time, and the next one has the key", func(t *testing.T) {
			l, store := setup(t)
			lease, x := tenure(t, l, store, 2)
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
			// Nobody follows without being asked for.
			handovers := store.count(opHandover)
			store.set(nil, opExtend)
			done = let(next)
			last := x.take(2)
			wantErr(t, <-done, nil)
			if store.count(opHandover) == handovers {
				t.Error("a hold that the store did not confirm was passed on")
			}
			time.Sleep(time.Minute)
			wantHeldLease(t, last)
			release(t, last)
			wantFree(t, store.inner, "order:1")
		})
		sim(t, "when "+name+" at first, the next question is answered", func(t *testing.T) {
			l, store := setup(t)
			lease, x := tenure(t, l, store, 1)
			store.set(first(1, f), opExtend)
			done := let(lease)
			next := x.take(1)
			wantErr(t, <-done, nil)
			wantHeldLease(t, next)
			release(t, next)
			wantFree(t, store.inner, "order:1")
			time.Sleep(5 * time.Second) // what is late comes
		})
	}
	sim(t, "whoever goes at the instant at which it is given the hold leaves nothing", func(t *testing.T) {
		l, store := setup(t)
		gone, stayed := 0, 0
		for range 5_000 {
			store.forget()
			ctx, cancel := context.WithCancel(t.Context())
			first, x := tenureBefore(t, l, store, func(x *tenants) {
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
			release(t, x.take(2))
			wantErr(t, <-done, nil)
			time.Sleep(10 * time.Millisecond)
			wantFree(t, store.inner, "order:1")
		}
		if gone < 100 || stayed < 100 {
			t.Errorf("vacuous: %d went, %d stayed", gone, stayed)
		}
	})
	sim(t, "Close gives the hold back", func(t *testing.T) {
		l, store := setup(t)
		lease, x := tenure(t, l, store, 2)
		release(t, lease)
		lease = x.take(1)
		closed := make(chan error, 1)
		go func() { closed <- l.Close(t.Context()) }()
		synctest.Wait()
		release(t, lease)
		wantErr(t, <-closed, nil)
		wantFree(t, store.inner, "order:1")
	})
}

func TestTenureIsJoined(t *testing.T) {
	t.Parallel()
	// show makes the owner known; joined is what somebody does with it.
	sim(t, "nobody follows a lease whose owner may be known", func(t *testing.T) {
		for name, show := range map[string]func(l *core.Locker, lease *core.Lease) func(){
			"Owner": func(_ *core.Locker, lease *core.Lease) func() {
				lease.Owner()
				return func() {}
			},
			"a nested lease": func(l *core.Locker, lease *core.Lease) func() {
				inner, err := l.Acquire(lease.Context(), "order:1")
				if err != nil {
					t.Errorf("nested: %v", err)
					return func() {}
				}
				if inner.Token() != lease.Token() {
					t.Errorf("the nested lease has token %d, want %d", inner.Token(), lease.Token())
				}
				return func() { release(t, inner) }
			},
		} {
			l, store := setup(t)
			first, x := tenure(t, l, store, 2)
			done := let(first)
			lease := x.take(1)
			wantErr(t, <-done, nil)
			end := show(l, lease)
			done = let(lease)
			time.Sleep(time.Second)
			if name != "Owner" && x.has(2) {
				t.Errorf("%s: the next one has the key", name)
			}
			end()
			last := x.take(2)
			wantErr(t, <-done, nil)
			if store.count(opHandover) < 2 {
				t.Errorf("%s: the hold was passed on", name)
			}
			release(t, last)
			wantFree(t, store.inner, "order:1")
		}
	})
	sim(t, "who asks for the owner of a lease that has ended cannot join the next one", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		lease, x := tenure(t, l, store, 3)
		for n := 1; n <= 3; n++ {
			wantErr(t, <-let(lease), nil)
			next := x.take(n)
			ctx := core.ContextWithOwner(t.Context(), lease.Owner())
			_, err := other.TryAcquire(ctx, "order:1")
			wantErr(t, err, core.ErrBusy)
			_, err = l.TryAcquire(lease.Context(), "order:1")
			wantErr(t, err, core.ErrBusy)
			lease = next
		}
		release(t, lease)
	})
	sim(t, "who joins has the token of the lease, wherever it is", func(t *testing.T) {
		l, store := setup(t)
		other, third := newLocker(t, store.inner), newLocker(t, store.inner)
		first, x := tenure(t, l, store, 2)
		done := let(first)
		lease := x.take(1)
		joined := acquire(t, core.ContextWithOwner(t.Context(), lease.Owner()), other, "order:1")
		again := acquire(t, core.ContextWithOwner(t.Context(), joined.Owner()), third, "order:1")
		inner := acquire(t, lease.Context(), l, "order:1")
		foreign := acquire(t, lease.Context(), third, "order:1")
		for name, one := range map[string]*core.Lease{"another process": joined, "one that it told": again, "a nested one": inner, "another Locker": foreign} {
			if one.Token() != lease.Token() || one.Owner() != lease.Owner() {
				t.Errorf("%s has token %d of %q, want %d of %q", name, one.Token(), one.Owner(), lease.Token(), lease.Owner())
			}
		}
		wantErr(t, <-done, nil)
		release(t, lease)
		for _, one := range []*core.Lease{again, inner, foreign} {
			release(t, one)
		}
		time.Sleep(time.Minute)
		if x.has(2) {
			t.Error("the key was given away while it was held")
		}
		token := joined.Token()
		release(t, joined)
		last := x.take(2)
		if last.Token() <= token {
			t.Errorf("token %d came after %d", last.Token(), token)
		}
		release(t, last)
	})
	sim(t, "Owner beside a release lets nobody in", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		in := 0
		for range 2_000 {
			store.forget()
			lease, x := tenure(t, l, store, 1)
			owner := make(chan string, 1)
			show := func() { owner <- lease.Owner() }
			var done <-chan error
			if rand.N(2) == 0 {
				go show()
				runtime.Gosched()
				done = let(lease)
			} else {
				done = let(lease)
				runtime.Gosched()
				go show()
			}
			if joined, err := other.TryAcquire(core.ContextWithOwner(t.Context(), <-owner), "order:1"); err == nil {
				in++
				time.Sleep(time.Second)
				if x.has(1) {
					t.Fatal("the next one has the key with somebody who joined")
				}
				release(t, joined)
			}
			next := x.take(1)
			wantErr(t, <-done, nil)
			release(t, next)
			time.Sleep(time.Minute)
		}
		fmt.Fprintln(t.Output(), in, "joined in time")
	})
}
