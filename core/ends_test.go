package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

// ends counts, for each name, the acquired leases, and the leases that were released or
// lost.
type ends struct {
	mu              sync.Mutex
	acquired, ended map[string]int
}

func newEnds() *ends { return &ends{acquired: map[string]int{}, ended: map[string]int{}} }

func (e *ends) Observe(_ context.Context, v core.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch v.Kind {
	case core.Acquired:
		e.acquired[v.Name]++
	case core.Lost, core.Released:
		e.ended[v.Name]++
	}
}

// judge fails the test unless, for each name, as many leases were released or lost as
// were acquired. It returns the number of names.
func (e *ends) judge(t *testing.T) int {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, n := range e.ended {
		if n != e.acquired[name] {
			t.Errorf("%s: acquired %d times, ended %d times", name, e.acquired[name], n)
		}
	}
	for name, n := range e.acquired {
		if e.ended[name] != n {
			t.Errorf("%s: acquired %d times, ended %d times", name, n, e.ended[name])
		}
	}
	return len(e.acquired)
}

func TestAcquired_OneEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, l *core.Locker, store *scripted, lease *core.Lease){
		"released": func(t *testing.T, _ *core.Locker, _ *scripted, lease *core.Lease) { release(t, lease) },
		"released twice": func(t *testing.T, _ *core.Locker, _ *scripted, lease *core.Lease) {
			release(t, lease)
			release(t, lease)
		},
		"closed": func(t *testing.T, l *core.Locker, _ *scripted, _ *core.Lease) { _ = l.Close(within(t, 0)) },
		"lost and released": func(t *testing.T, _ *core.Locker, s *scripted, lease *core.Lease) {
			s.set(hang, opExtend)
			lossTime(t, lease)
			wantErr(t, lease.Release(t.Context()), core.ErrLost)
		},
		"lost and closed": func(t *testing.T, l *core.Locker, s *scripted, lease *core.Lease) {
			s.set(hang, opExtend)
			lossTime(t, lease)
			_ = l.Close(within(t, 0))
		},
		"released during an outage": func(t *testing.T, _ *core.Locker, s *scripted, lease *core.Lease) {
			s.set(hang, opRelease)
			wantErr(t, lease.Release(t.Context()), core.ErrUnavailable)
			s.set(nil, opRelease)
			time.Sleep(time.Minute)
		},
		"forgotten by the store": func(t *testing.T, _ *core.Locker, s *scripted, lease *core.Lease) {
			if err := s.inner.Release(t.Context(), s.sent(opAcquire)[0].claims[0]); err != nil {
				t.Fatal(err)
			}
			wantErr(t, lease.Release(t.Context()), core.ErrLost)
		},
	} {
		sim(t, "a lease that is "+name, func(t *testing.T) {
			seen := newEnds()
			l, store := setup(t, core.WithObserver(seen))
			lease := acquire(t, t.Context(), l, "order:1")
			end(t, l, store, lease)
			synctest.Wait()
			if n := seen.judge(t); n != 1 {
				t.Errorf("%d leases were acquired", n)
			}
		})
	}
	// A lease whose acquire fails is never reported as acquired, released or lost.
	sim(t, "lost before its acquire returns", func(t *testing.T) {
		seen := newEnds()
		l, store := setup(t, core.WithObserver(seen))
		other := newLocker(t, store)
		blocking, err := other.Acquire(t.Context(), "b:1")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(5*time.Second, func() { _ = blocking.Release(context.Background()) })
		// The TTL of the first key passes while the acquire waits for the second key.
		_, err = l.Acquire(t.Context(), "a:1", core.Also("b:1"), core.TTL(time.Second), core.NoRenew())
		if !errors.Is(err, core.ErrLost) {
			t.Fatalf("got %v, want ErrLost", err)
		}
		synctest.Wait()
		if n := seen.judge(t); n != 0 {
			t.Errorf("%d leases were acquired", n)
		}
	})
	sim(t, "random ends", func(t *testing.T) {
		seen := newEnds()
		rng := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		chance := func(n int) bool {
			mu.Lock()
			defer mu.Unlock()
			return rng.IntN(n) == 0
		}
		faults := []fault{loseRequest, loseReply, hang, hangAfter, slow(time.Second, time.Second)}
		random := func(ctx context.Context, n int, do func() error) error {
			mu.Lock()
			f := faults[rng.IntN(len(faults))]
			mu.Unlock()
			if chance(4) {
				return f(ctx, n, do)
			}
			return do()
		}
		l, store := setup(t, core.WithObserver(seen))
		other := newLocker(t, store, core.WithObserver(seen))
		store.setAll(random)
		var wg sync.WaitGroup
		for g := range 20 {
			wg.Go(func() {
				for n := range 30 {
					from := l
					if g%2 == 0 {
						from = other
					}
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					name := fmt.Sprintf("lease-%d-%d", g, n)
					key := fmt.Sprintf("order:%d", g%3)
					opts := []core.AcquireOption{core.Name(name), core.TTL(2 * time.Second)}
					switch {
					case chance(4):
						opts = append(opts, core.Shared())
					case chance(4):
						opts = append(opts, core.Also("z:1"))
					case chance(4):
						opts = append(opts, core.MaxHold(time.Second))
					}
					if lease, err := from.Acquire(ctx, key, opts...); err == nil {
						if chance(2) {
							time.Sleep(3 * time.Second)
						}
						if again, err := from.Acquire(lease.Context(), key, core.Name(name+"-again"), core.TTL(2*time.Second)); err == nil {
							_ = again.Release(ctx)
						}
						_ = lease.Release(ctx)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		store.setAll(nil)
		time.Sleep(20 * time.Minute)
		if n := seen.judge(t); n < 100 {
			t.Errorf("test setup: got %d leases", n)
		}
	})
}
