package core_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// served acquires order:1 while another process holds the key for ten seconds. It
// returns the time from the release of that process until the acquire has returned.
func served(t *testing.T, l *core.Locker, store *scripted, o ...core.AcquireOption) time.Duration {
	t.Helper()
	holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
	store.forget()
	time.AfterFunc(10*time.Second, func() { holder.Release(context.Background()) })
	start := time.Now()
	lease := acquire(t, t.Context(), l, "order:1", o...)
	took := time.Since(start)
	release(t, lease)
	return took - 10*time.Second
}

// TestBrokenWatch covers hazard 39 of PROOF.md.
func TestBrokenWatch(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	close(closed)
	for name, watch := range map[string]func(ctx context.Context, n int) (<-chan struct{}, error){
		"breaks at once": func(context.Context, int) (<-chan struct{}, error) {
			return closed, nil
		},
		"not opened": func(context.Context, int) (<-chan struct{}, error) {
			return nil, errors.New("subscription refused")
		},
		"not supported": func(context.Context, int) (<-chan struct{}, error) {
			return nil, core.ErrUnsupported
		},
		"hangs at opening": func(ctx context.Context, _ int) (<-chan struct{}, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"hangs silently": func(ctx context.Context, _ int) (<-chan struct{}, error) {
			<-ctx.Done()
			return make(chan struct{}), nil
		},
		"loses wake-ups": func(context.Context, int) (<-chan struct{}, error) {
			return make(chan struct{}), nil
		},
	} {
		sim(t, name, func(t *testing.T) {
			l, store := setup(t)
			store.setWatch(watch)
			wait := served(t, l, store)
			if wait < 0 || wait > 3200*time.Millisecond {
				t.Errorf("served %v after the release", wait)
			}
			// The pauses in the first second are short.
			if n := store.count(opAcquire); n < 4 || n > 38 {
				t.Errorf("%d questions in %v", n, 10*time.Second+wait)
			}
			if n := store.count(opWatch); n > 12 {
				t.Errorf("the watch was opened %d times", n)
			}
		})
	}
	// If a wake-up is lost, the waiter asks again after its usual pause.
	sim(t, "swallowed wake-up", func(t *testing.T) {
		for range 100 {
			l, store := setup(t)
			store.setWatch(func(context.Context, int) (<-chan struct{}, error) { return make(chan struct{}), nil })
			if wait := served(t, l, store); wait < 0 || wait > 2300*time.Millisecond {
				t.Fatalf("served %v after the release", wait)
			}
			if n := store.count(opAcquire); n > 14 {
				t.Fatalf("%d questions", n)
			}
		}
	})
	// A broken watch is opened again, and then wakes its waiter.
	sim(t, "reopened watch", func(t *testing.T) {
		l, s := setup(t)
		inner := s.inner.(store.Watcher)
		s.setWatch(func(ctx context.Context, n int) (<-chan struct{}, error) {
			claim := s.sent(opWatch)[n-1].claims[0]
			if n > 1 {
				return inner.Watch(ctx, claim)
			}
			short := make(chan struct{})
			time.AfterFunc(3*time.Second, func() { close(short) })
			return short, nil
		})
		if wait := served(t, l, s); wait != 0 {
			t.Errorf("served %v after the release", wait)
		}
		if n := s.count(opWatch); n != 2 {
			t.Errorf("the watch was opened %d times, want 2", n)
		}
	})
	sim(t, "closed after the waiting", func(t *testing.T) {
		l, s := setup(t)
		var watching context.Context
		inner := s.inner.(store.Watcher)
		s.setWatch(func(ctx context.Context, n int) (<-chan struct{}, error) {
			watching = ctx
			return inner.Watch(ctx, s.sent(opWatch)[n-1].claims[0])
		})
		served(t, l, s)
		if watching == nil || watching.Err() == nil {
			t.Error("the watch is still on after the lease was granted")
		}
	})
	// A lone caller that finds the key free opens no watch.
	sim(t, "lone caller with free key", func(t *testing.T) {
		l, store := setup(t)
		release(t, acquire(t, t.Context(), l, "order:1"))
		if got, want := store.count(), 2; got != want || store.count(opWatch) != 0 {
			t.Errorf("%d calls, want one acquire and one release", got)
		}
	})
	// If a lone caller had to wait, the next lone caller opens its watch first, and
	// asks only once before its wait.
	sim(t, "lone caller after another", func(t *testing.T) {
		l, store := setup(t)
		served(t, l, store)
		asked := func() (acquires, watches int) { return store.count(opAcquire), store.count(opWatch) }
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		store.forget()
		time.AfterFunc(time.Second, func() { holder.Release(context.Background()) })
		release(t, acquire(t, t.Context(), l, "order:1"))
		if n, w := asked(); n != 2 || w != 1 {
			t.Errorf("%d questions and %d watches, want 2, one of them after the release, and 1", n, w)
		}
		store.forget()
		// After the first caller finds the key free, the next caller expects a free key.
		for range 2 {
			release(t, acquire(t, t.Context(), l, "order:1"))
		}
		if n, w := asked(); n != 2 || w != 1 {
			t.Errorf("%d questions and %d watches, want 2 and 1", n, w)
		}
	})
	// A lone caller asks the store even if its watch failed.
	sim(t, "lone caller with failed watch", func(t *testing.T) {
		l, store := setup(t)
		served(t, l, store)
		store.setWatch(func(ctx context.Context, _ int) (<-chan struct{}, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		served(t, l, store)
		start := time.Now()
		release(t, acquire(t, t.Context(), l, "order:1"))
		if took := time.Since(start); took != 0 {
			t.Errorf("got a free key after %v", took)
		}
	})
	// A lone caller gets a free key although its watch hangs, even if the caller's
	// deadline is near.
	sim(t, "lone caller with hanging watch", func(t *testing.T) {
		for _, limit := range []time.Duration{100 * time.Millisecond, time.Second} {
			l, store := setup(t)
			for range 10 {
				served(t, l, store) // marks the key as contended
				store.setWatch(func(ctx context.Context, _ int) (<-chan struct{}, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				})
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				start := time.Now()
				lease, err := l.Acquire(ctx, "order:1")
				if took := time.Since(start); err != nil || took > limit/2 {
					t.Fatalf("%v after %v", err, took)
				}
				release(t, lease)
				cancel()
				store.setWatch(nil)
			}
		}
	})
	// Callers that have queued get a free key one after the other although their watches
	// hang. Only one watch, after a busy answer, may take two seconds.
	sim(t, "queued callers with hanging watches", func(t *testing.T) {
		l, store := setup(t)
		store.setWatch(func(ctx context.Context, _ int) (<-chan struct{}, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		const work = 20 * time.Millisecond
		start := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				lease, err := l.Acquire(t.Context(), "order:1")
				if err != nil {
					t.Errorf("got %v, want a lease", err)
					return
				}
				time.Sleep(work)
				release(t, lease)
			})
		}
		all.Wait()
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("ten callers were served in %v, want at most 4 s", took)
		}
	})
	// A lone caller whose watch takes longer than its short time does not make the heads
	// of other queues give up their watches.
	sim(t, "slow watch of another key", func(t *testing.T) {
		l, store := setup(t)
		served(t, l, store) // marks the key as contended
		var mu sync.Mutex
		var watches []chan struct{}
		store.setWatch(func(ctx context.Context, _ int) (<-chan struct{}, error) {
			select {
			case <-time.After(100 * time.Millisecond):
				mu.Lock()
				defer mu.Unlock()
				watches = append(watches, make(chan struct{}, 1))
				return watches[len(watches)-1], nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		other := newLocker(t, store.inner)
		first, second := acquire(t, t.Context(), other, "order:1"), acquire(t, t.Context(), other, "order:2")
		var all sync.WaitGroup
		defer all.Wait()
		wait := func(ctx context.Context, key string, served func()) {
			all.Go(func() {
				if lease, err := l.Acquire(ctx, key); err == nil {
					served()
					release(t, lease)
				}
			})
			synctest.Wait()
		}
		head, leave := context.WithCancel(t.Context())
		wait(t.Context(), "order:1", func() {})
		wait(head, "order:2", func() {})
		var released time.Time
		wait(t.Context(), "order:2", func() {
			if took := time.Since(released); took > 0 {
				t.Errorf("got the key %v after its release, want it at once", took)
			}
		})
		time.Sleep(60 * time.Millisecond) // the watch of the first key was given up
		leave()
		time.Sleep(500 * time.Millisecond)
		released = time.Now()
		release(t, second)
		mu.Lock()
		for _, w := range watches {
			w <- struct{}{}
		}
		mu.Unlock()
		time.Sleep(5 * time.Second)
		release(t, first)
	})
	// The watch does not delay the end of a short wait.
	sim(t, "short wait with hanging watch", func(t *testing.T) {
		l, store := setup(t)
		store.setWatch(func(ctx context.Context, _ int) (<-chan struct{}, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		for range 2 {
			start := time.Now()
			_, err := l.Acquire(t.Context(), "order:1", core.Wait(100*time.Millisecond))
			wantErr(t, err, core.ErrBusy)
			if took := time.Since(start); took > 150*time.Millisecond {
				t.Errorf("got a busy answer after %v, want 100 ms", took)
			}
		}
		release(t, holder)
	})
	// If the holder dies while many processes wait, only some of them ask the store at
	// that moment.
	sim(t, "holder of many waiters dies", func(t *testing.T) {
		const waiting, holder = 60, 2 * time.Second
		var asked atomic.Int32
		var all sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), holder+100*time.Millisecond)
		defer cancel()
		start := time.Now()
		for range waiting {
			l, store := setup(t)
			store.set(func(context.Context, int, func() error) error {
				if time.Since(start) >= holder {
					asked.Add(1)
				}
				return &core.BusyError{RetryAfter: holder - time.Since(start), Waiting: waiting}
			}, opAcquire)
			all.Go(func() { l.Acquire(ctx, "order:1") })
		}
		all.Wait()
		if n := asked.Load(); n < 2 || n > waiting/2+10 {
			t.Errorf("%d of %d ask when the holder has died, want a few", n, waiting)
		}
	})
	sim(t, "many waiters", func(t *testing.T) {
		l, store := setup(t)
		const waiting = 1000
		store.set(func(_ context.Context, n int, _ func() error) error {
			return &core.BusyError{Waiting: waiting}
		}, opAcquire)
		ctx, cancel := context.WithTimeout(t.Context(), 61*time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, "order:1")
		wantErr(t, err, core.ErrBusy)
		if n := store.count(opAcquire); n < 11 || n > 14 {
			t.Errorf("%d questions in a minute, want one in five seconds", n)
		}
		_, err = l.TryAcquire(t.Context(), "order:1")
		var busy *core.BusyError
		if !errors.As(err, &busy) || busy.Waiting != waiting {
			t.Errorf("%v does not say how many wait", err)
		}
	})
	// A waiter does not miss a release between its first request and the opening of its
	// watch.
	sim(t, "release before the watch", func(t *testing.T) {
		l, s := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, s.inner), "order:1")
		inner := s.inner.(store.Watcher)
		s.setWatch(func(ctx context.Context, n int) (<-chan struct{}, error) {
			release(t, holder)
			return inner.Watch(ctx, s.sent(opWatch)[n-1].claims[0])
		})
		start := time.Now()
		lease := acquire(t, t.Context(), l, "order:1")
		if took := time.Since(start); took != 0 {
			t.Errorf("served after %v", took)
		}
		release(t, lease)
	})
	// A waiter whose TTL is shorter than the pause between its requests keeps its place
	// and is woken.
	sim(t, "lease shorter than a poll", func(t *testing.T) {
		for _, o := range [][]core.AcquireOption{nil, opts(core.Fair())} {
			l, store := setup(t)
			if wait := served(t, l, store, append(o, core.TTL(150*time.Millisecond))...); wait != 0 {
				t.Errorf("served %v after the release", wait)
			}
		}
	})
}
