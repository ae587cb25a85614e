package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

func TestShared(t *testing.T) {
	t.Parallel()
	// Readers hold the key together, and each writer holds the key alone. All of them
	// get the key.
	sim(t, "readers and writers", func(t *testing.T) {
		l, store := setup(t)
		lockers := []*core.Locker{l, newLocker(t, store.inner), newLocker(t, store.inner)}
		var readers, writers, most atomic.Int32
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				time.Sleep(rand.N(time.Second))
				mine, others, o := &readers, &writers, opts(core.Shared())
				if i%10 == 0 {
					mine, others, o = &writers, &readers, nil
				}
				err := lockers[i%3].Do(t.Context(), "order:1", func(context.Context) error {
					n := mine.Add(1)
					if others.Load() != 0 || i%10 == 0 && n != 1 {
						t.Errorf("%d readers and %d writers are in", readers.Load(), writers.Load())
					}
					if i%10 != 0 {
						raise(&most, n)
					}
					time.Sleep(rand.N(100 * time.Millisecond))
					mine.Add(-1)
					return nil
				}, o...)
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most.Load() < 3 {
			t.Errorf("at most %d readers were in together", most.Load())
		}
		wantFree(t, store.inner, "order:1")
	})
	// A writer gets the key when the last reader releases it. A reader has no token.
	sim(t, "writer after the last reader", func(t *testing.T) {
		l, store := setup(t)
		a := acquire(t, t.Context(), l, "order:1", core.Shared())
		b := acquire(t, t.Context(), newLocker(t, store.inner), "order:1", core.Shared())
		if a.Token() != 0 || b.TokenOf("order:1") != 0 {
			t.Error("a reader has a token")
		}
		time.AfterFunc(time.Second, func() { a.Release(context.Background()) })
		time.AfterFunc(5*time.Second, func() { b.Release(context.Background()) })
		start := time.Now()
		writer := acquire(t, t.Context(), l, "order:1")
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("the writer was in after %v", d)
		}
		release(t, writer)
	})
	// A fair writer gets the key although new readers continue to arrive.
	sim(t, "fair writer among readers", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 30 * time.Millisecond)
				for ctx.Err() == nil {
					lease, err := other.Acquire(ctx, "order:1", core.Shared(), core.Fair())
					if err != nil {
						return
					}
					time.Sleep(100 * time.Millisecond)
					lease.Release(ctx)
				}
			})
		}
		time.Sleep(time.Second)
		start := time.Now()
		writer := acquire(t, t.Context(), l, "order:1", core.Fair())
		if d := time.Since(start); d > 200*time.Millisecond {
			t.Errorf("the writer was in after %v", d)
		}
		stop()
		release(t, writer)
		wg.Wait()
	})
}

func TestPermits(t *testing.T) {
	t.Parallel()
	// The number of permits in use reaches the limit, and never exceeds it.
	sim(t, "permits in use", func(t *testing.T) {
		const of = 5
		l, store := setup(t)
		lockers := []*core.Locker{l, newLocker(t, store.inner), newLocker(t, store.inner)}
		var out, most atomic.Int32
		var wg sync.WaitGroup
		for i := range 150 {
			wg.Go(func() {
				n := 1 + i%3
				err := lockers[i%3].Do(t.Context(), "pool", func(context.Context) error {
					now := out.Add(int32(n))
					if now > of {
						t.Errorf("%d permits are out", now)
					}
					raise(&most, now)
					time.Sleep(rand.N(50 * time.Millisecond))
					out.Add(-int32(n))
					return nil
				}, core.Permits(n, of))
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most.Load() != of {
			t.Errorf("at most %d permits were out, want %d", most.Load(), of)
		}
		wantFree(t, store.inner, "pool")
	})
}

func TestFair(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ttl   time.Duration
		store func(core.Store) core.Store
	}{
		"":                   {30 * time.Second, func(s core.Store) core.Store { return s }},
		" with short leases": {100 * time.Millisecond, func(s core.Store) core.Store { return s }},
		" without wake-ups":  {3 * time.Second, func(s core.Store) core.Store { return blind{s} }},
	} {
		// The heads of many processes are served in order of arrival.
		sim(t, "heads of many processes"+name, func(t *testing.T) {
			const processes = 20
			_, store := setup(t)
			holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
			var served []int
			var wg sync.WaitGroup
			for i := range processes {
				l := newLocker(t, c.store(store.inner))
				wg.Go(func() {
					err := l.Do(t.Context(), "order:1", func(context.Context) error {
						served = append(served, i)
						time.Sleep(20 * time.Millisecond)
						return nil
					}, core.Fair(), core.TTL(c.ttl))
					if err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			time.Sleep(30 * time.Second)
			start := time.Now()
			release(t, holder)
			wg.Wait()
			if !slices.IsSorted(served) || len(served) != processes {
				t.Errorf("served in the order %v", served)
			}
			if d := time.Since(start); name != " without wake-ups" && d > processes*25*time.Millisecond {
				t.Errorf("got all after %v", d)
			}
		})
	}
}

func TestKeepFor(t *testing.T) {
	t.Parallel()
	// A key with KeepFor stays taken until the time of KeepFor has passed, counted from
	// the grant.
	sim(t, "released early", func(t *testing.T) {
		for _, delay := range []time.Duration{0, time.Second} {
			l, store := setup(t)
			store.set(slow(delay, delay/2), opAcquire)
			lease := acquire(t, t.Context(), l, "job", core.KeepFor(time.Minute), core.TTL(10*time.Second))
			start := time.Now()
			time.Sleep(3 * time.Second)
			release(t, lease)
			wantErr(t, lease.Extend(t.Context(), time.Minute), core.ErrLost)
			for _, ctx := range []context.Context{
				t.Context(), context.WithoutCancel(lease.Context()), core.ContextWithOwner(t.Context(), lease.Owner()),
			} {
				_, err := l.TryAcquire(ctx, "job")
				wantErr(t, err, core.ErrBusy)
			}
			next := acquire(t, t.Context(), newLocker(t, store.inner), "job")
			if d := time.Since(start); d < time.Minute || d > time.Minute+20*time.Millisecond {
				t.Errorf("the key was taken for %v, want a minute", d)
			}
			release(t, next)
		}
	})
	// A lease that is released after the time of KeepFor leaves the key free at once.
	sim(t, "released late", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "job", core.KeepFor(time.Minute), core.Also("other"))
		time.Sleep(61 * time.Second)
		release(t, lease)
		wantFree(t, store.inner, "job", "other")
	})
	// A failed acquire with KeepFor leaves its keys free.
	sim(t, "failed acquire", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), l, "b")
		_, err := l.TryAcquire(t.Context(), "a", core.Also("b"), core.KeepFor(time.Hour))
		wantErr(t, err, core.ErrBusy)
		wantFree(t, store.inner, "a")
		release(t, holder)
	})
	// KeepFor keeps all keys of a lease. If the reply to the release is lost, the keys
	// are not kept for longer.
	sim(t, "all keys with lost reply", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "a", core.Also("b"), core.KeepFor(time.Minute))
		store.set(func(ctx context.Context, n int, do func() error) error {
			if n%2 == 1 {
				return loseReply(ctx, n, do)
			}
			return do()
		}, opRelease)
		release(t, lease)
		wantHeld(t, store.inner, "a", "b")
		time.Sleep(time.Minute)
		wantFree(t, store.inner, "a", "b")
	})
	sim(t, "one job of many replicas", func(t *testing.T) {
		_, store := setup(t)
		var wg sync.WaitGroup
		var ran atomic.Int32
		for i := range 10 {
			l := newLocker(t, store.inner)
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second) // the replicas' clocks differ
				err := l.Do(t.Context(), "job", func(context.Context) error {
					ran.Add(1)
					return nil
				}, core.KeepFor(time.Minute), core.Wait(0))
				if err != nil {
					wantErr(t, err, core.ErrBusy)
				}
			})
		}
		wg.Wait()
		if ran.Load() != 1 {
			t.Errorf("it ran %d times", ran.Load())
		}
		time.Sleep(time.Minute)
	})
}

// unfenced is a store that cannot fence.
type unfenced struct{ core.Store }

func (s unfenced) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.MinToken > 0 {
		return store.Grant{}, fmt.Errorf("unfenced: %w", core.ErrUnsupported)
	}
	g, err := s.Store.Acquire(ctx, c)
	g.Token = 0
	return g, err
}

func TestFenced(t *testing.T) {
	t.Parallel()
	// If the store cannot fence, Fenced is refused, and nothing is held or cleaned up.
	sim(t, "refused without tokens", func(t *testing.T) {
		store := newScripted(unfenced{memStore()})
		l := newLocker(t, store)
		_, err := l.Acquire(t.Context(), "order:1", core.Fenced())
		wantErr(t, err, core.ErrUnsupported)
		wantNot(t, err, core.ErrUnavailable, core.ErrBusy)
		if n := store.count(); n != 1 {
			t.Errorf("%d calls, want one", n)
		}
		lease := acquire(t, t.Context(), l, "order:1")
		if lease.Token() != 0 {
			t.Errorf("token %d", lease.Token())
		}
		release(t, lease)
	})
	// Tokens grow with each grant, even after a release, an expiry or a loss.
	sim(t, "growing tokens", func(t *testing.T) {
		l, store := setup(t)
		lockers := []*core.Locker{l, newLocker(t, store.inner)}
		var last uint64
		for i := range 300 {
			lease := acquire(t, t.Context(), lockers[i%2], "order:1", core.Fenced(), core.NoRenew(), core.TTL(100*time.Millisecond))
			if lease.Token() <= last {
				t.Fatalf("token %d after %d", lease.Token(), last)
			}
			last = lease.Token()
			if i%3 == 0 {
				lossTime(t, lease)
				wantErr(t, lease.Release(t.Context()), core.ErrLost)
			} else {
				release(t, lease)
			}
		}
	})
}
