package core_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

func wantSnapshot(t *testing.T, l *core.Locker, cleanUps int, want ...core.LockCount) {
	t.Helper()
	got := l.Snapshot()
	if !slices.Equal(got.Locks, want) || got.CleanUps != cleanUps {
		t.Errorf("got %+v\nwant %+v and %d clean-ups", got, want, cleanUps)
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	// A snapshot has the number of held and waiting leases by name and mode, and the
	// age of the oldest.
	sim(t, "leases by name and mode", func(t *testing.T) {
		l, _ := setup(t)
		wantSnapshot(t, l, 0)
		a := acquire(t, t.Context(), l, "order:1")
		time.Sleep(time.Second)
		b := acquire(t, t.Context(), l, "order:2")
		inner := acquire(t, b.Context(), l, "order:2")
		reader := acquire(t, t.Context(), l, "order:3", core.Shared())
		two := acquire(t, t.Context(), l, "door:1", core.Permits(2, 3), core.Name("a.door"))
		run := begin(t, l, "pay:1", 1)
		got := make(chan *core.Lease)
		for range 2 {
			go func() { got <- acquire(t, t.Context(), l, "order:1") }()
			time.Sleep(time.Second)
		}
		wantSnapshot(t, l, 0,
			core.LockCount{Name: "a.door", Mode: core.ModePermits, Held: 1, OldestHeld: 2 * time.Second},
			core.LockCount{Name: "order", Mode: core.ModeExclusive, Held: 3, Waiting: 2, OldestHeld: 3 * time.Second, OldestWaiting: 2 * time.Second},
			core.LockCount{Name: "order", Mode: core.ModeShared, Held: 1, OldestHeld: 2 * time.Second},
			core.LockCount{Name: "pay", Mode: core.ModeRun, Held: 1, OldestHeld: 2 * time.Second})
		for _, lease := range []*core.Lease{a, inner, reader, two, run} {
			release(t, lease)
		}
		next := <-got
		time.Sleep(time.Second)
		wantSnapshot(t, l, 0, core.LockCount{
			Name: "order", Mode: core.ModeExclusive, Held: 2, Waiting: 1, OldestHeld: 3 * time.Second, OldestWaiting: 2 * time.Second,
		})
		release(t, b)
		wantSnapshot(t, l, 0, core.LockCount{
			Name: "order", Mode: core.ModeExclusive, Held: 1, Waiting: 1, OldestHeld: time.Second, OldestWaiting: 2 * time.Second,
		})
		release(t, next)
		release(t, <-got)
		wantSnapshot(t, l, 0)
	})
	// A lost lease does not count as held. It counts as lost until it is released.
	sim(t, "lost until released", func(t *testing.T) {
		l, _ := setup(t)
		lease := acquire(t, t.Context(), l, "order:1", core.NoRenew())
		reader := acquire(t, t.Context(), l, "order:2", core.NoRenew(), core.Shared())
		lossTime(t, lease)
		lossTime(t, reader)
		synctest.Wait()
		other := acquire(t, t.Context(), l, "order:3")
		wantSnapshot(t, l, 0,
			core.LockCount{Name: "order", Mode: core.ModeExclusive, Held: 1, Lost: 1},
			core.LockCount{Name: "order", Mode: core.ModeShared, Lost: 1})
		wantErr(t, reader.Release(t.Context()), core.ErrLost)
		release(t, other)
		synctest.Wait()
		wantSnapshot(t, l, 0, core.LockCount{Name: "order", Mode: core.ModeExclusive, Lost: 1})
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		synctest.Wait()
		wantSnapshot(t, l, 0)
	})
	// A lost run counts as lost until its answer is saved.
	sim(t, "lost run", func(t *testing.T) {
		l, s := setup(t)
		run := begin(t, l, "pay:1", 1, core.NoRenew())
		lossTime(t, run)
		s.set(slow(time.Second, 0), opRelease)
		saved := make(chan error, 1)
		go func() { saved <- run.Finish(t.Context(), store.Record{Value: []byte("paid"), Retain: time.Hour}) }()
		synctest.Wait()
		wantSnapshot(t, l, 0, core.LockCount{Name: "pay", Mode: core.ModeRun, Lost: 1})
		wantErr(t, <-saved, nil)
		wantSnapshot(t, l, 0)
	})
	// A caller of Acquire counts as waiting from the start of the call, even if the
	// store does not answer.
	sim(t, "waiting since the call", func(t *testing.T) {
		l, store := setup(t)
		store.set(hang, opAcquire)
		ctx, cancel := context.WithCancel(t.Context())
		go l.Acquire(ctx, "order:1")
		time.Sleep(1500 * time.Millisecond)
		wantSnapshot(t, l, 0, core.LockCount{Name: "order", Mode: core.ModeExclusive, Waiting: 1, OldestWaiting: 1500 * time.Millisecond})
		cancel()
		synctest.Wait()
		store.set(nil, opAcquire)
		time.Sleep(time.Minute)
		wantSnapshot(t, l, 0)
	})
	// Claims that are released in the background count until the store has answered.
	sim(t, "claims in clean-up", func(t *testing.T) {
		l, store := setup(t)
		leases := []*core.Lease{acquire(t, t.Context(), l, "order:1"), acquire(t, t.Context(), l, "order:2")}
		store.set(loseRequest, opRelease)
		for _, lease := range leases {
			wantErr(t, lease.Release(t.Context()), core.ErrUnavailable)
		}
		time.Sleep(10 * time.Second)
		wantSnapshot(t, l, 2)
		store.set(nil, opRelease)
		time.Sleep(time.Second)
		wantSnapshot(t, l, 0)
	})
	sim(t, "closed Locker", func(t *testing.T) {
		l, _ := setup(t)
		lossTime(t, acquire(t, t.Context(), l, "order:1", core.NoRenew()))
		acquire(t, t.Context(), l, "order:1")
		go l.Acquire(t.Context(), "order:1")
		synctest.Wait()
		closeNow(l)
		synctest.Wait()
		wantSnapshot(t, l, 0)
	})
}

func TestSnapshotOfManyNames(t *testing.T) {
	t.Parallel()
	// Names that are no longer used have no entry in a snapshot, and most of their
	// tallies are deleted. A snapshot may be taken at any time.
	t.Run("names that are gone", func(t *testing.T) {
		t.Parallel()
		l := newLocker(t, memstore.New())
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := l.Snapshot()
				for i, c := range s.Locks {
					if c.Held+c.Lost+c.Waiting == 0 || i > 0 && c.Name <= s.Locks[i-1].Name {
						t.Errorf("%+v comes after %+v", c, s.Locks[max(i, 1)-1])
						return
					}
				}
			}
		})
		const names = 4000
		var leases [500]*core.Lease
		for i := range names {
			at := i % len(leases)
			if leases[at] != nil {
				release(t, leases[at])
			}
			leases[at] = acquire(t, t.Context(), l, fmt.Sprintf("n%d:1", i))
		}
		close(stop)
		wg.Wait()
		if got := l.Snapshot().Locks; len(got) != len(leases) {
			t.Errorf("there are %d names, want %d", len(got), len(leases))
		}
		for _, lease := range leases {
			release(t, lease)
		}
		if left := l.Left(); left != "" || len(l.Snapshot().Locks) != 0 {
			t.Errorf("left is %s", left)
		}
	})
}

// TestSnapshot_Constant is not parallel, because it counts the allocations of the
// whole program.
func TestSnapshot_Constant(t *testing.T) {
	t.Run("same cost for thousands", func(t *testing.T) {
		l := newLocker(t, memstore.New())
		var leases []*core.Lease
		cost := func(n int) float64 {
			for len(leases) < n {
				leases = append(leases, acquire(t, t.Context(), l, fmt.Sprint("order:", len(leases))))
			}
			return testing.AllocsPerRun(10, func() { l.Snapshot() })
		}
		if one, many := cost(1), cost(5000); many > one || one > 8 {
			t.Errorf("%v allocations for one, %v for 5000", one, many)
		}
		for _, lease := range leases {
			release(t, lease)
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	for _, names := range []int{1, 100, 100_000} {
		b.Run(fmt.Sprintf("100000 leases of %d names", names), func(b *testing.B) {
			l, err := core.New(memstore.New(), core.WithDefaults(core.TTL(time.Hour)))
			if err != nil {
				b.Fatal(err)
			}
			for i := range 100_000 {
				if _, err := l.Acquire(b.Context(), fmt.Sprintf("n%d:%d", i%names, i)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				l.Snapshot()
			}
		})
	}
}

// BenchmarkCycle measures the cost of a lock in the engine, with and without a snapshot
// every millisecond.
func BenchmarkCycle(b *testing.B) {
	for _, snapshots := range []bool{false, true} {
		b.Run(fmt.Sprintf("snapshots %v", snapshots), func(b *testing.B) {
			l, err := core.New(granting{new(atomic.Int64)})
			if err != nil {
				b.Fatal(err)
			}
			for i := range 100 { // 100 names with a held lease
				if _, err := l.Acquire(b.Context(), fmt.Sprintf("n%d:1", i)); err != nil {
					b.Fatal(err)
				}
			}
			if snapshots {
				ctx, cancel := context.WithCancel(b.Context())
				defer cancel()
				go func() {
					for ctx.Err() == nil {
						l.Snapshot()
						time.Sleep(time.Millisecond)
					}
				}()
			}
			b.ReportAllocs()
			ctx := context.Background()
			for b.Loop() {
				lease, err := l.Acquire(ctx, "order:1")
				if err != nil {
					b.Fatal(err)
				}
				lease.Release(ctx)
			}
		})
	}
}
