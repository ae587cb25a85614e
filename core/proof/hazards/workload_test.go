package hazards_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
)

// counting is a store that counts extensions. With unlocked set, it locks nothing.
type counting struct {
	*redisstore.Store
	unlocked      bool
	calls, claims atomic.Int64
}

func (c *counting) Acquire(ctx context.Context, claim store.Claim) (store.Grant, error) {
	if c.unlocked {
		return store.Grant{Owner: claim.Owner, Token: 1}, nil
	}
	return c.Store.Acquire(ctx, claim)
}

func (c *counting) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	c.calls.Add(1)
	c.claims.Add(int64(len(claims)))
	return c.Store.Extend(ctx, claims)
}

func (w *worker) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// spin starts n goroutines that alternately use all processor time and pause. It reports
// the longest delay of a timer.
func (w *worker) spin(o order) {
	w.say(report{ID: o.ID, Kind: "spinning"})
	for range o.N {
		go func() {
			for n := 0; !w.stopped(); time.Sleep(o.Hold / 2) {
				for end := mono() + int64(o.Hold); mono() < end; {
					for range 1 << 16 {
						n++
					}
				}
			}
		}()
	}
	var worst time.Duration
	for !w.stopped() {
		start := mono()
		time.Sleep(time.Millisecond)
		worst = max(worst, time.Duration(mono()-start))
	}
	w.say(report{ID: o.ID, Kind: "spun", Count: map[string]int{"late ms": int(worst.Milliseconds())}})
}

// loop acquires a key again and again, in n goroutines, and reports every hold. It also
// reports the start of a long hold. A test waits for this report before it revokes the
// hold. Without this report the hold's acquire may not have been answered yet, and the
// locker would send the acquire again after the revoke.
func (w *worker) loop(o order) {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-w.stop
		cancel()
	}()
	for i := range max(1, o.N) {
		wg.Go(func() {
			who := w.Name + "/" + strconv.Itoa(i)
			for ctx.Err() == nil {
				lease, err := w.locker.Acquire(ctx, o.Key, o.options()...)
				if err != nil {
					// If a process is stopped during a grant, it finds the lease lost.
					if !errors.Is(err, core.ErrUnavailable) && !errors.Is(err, core.ErrLost) && !errors.Is(err, context.Canceled) {
						w.say(failed(o.ID, "failed", err))
						return
					}
					continue
				}
				s := span{Key: o.Key, Who: who, From: mono(), Token: lease.Token()}
				if o.Hold >= time.Hour {
					w.say(report{ID: o.ID, Kind: "holding"})
				}
				s.Until = guard(lease, o.Hold, func() {})
				kept := 0
				if lease.Release(ctx) == nil {
					kept = 1
				}
				w.say(report{ID: o.ID, Kind: "hold", Span: s, Count: map[string]int{"kept": kept}})
				time.Sleep(o.Pause)
			}
		})
	}
	w.say(report{ID: o.ID, Kind: "looping"})
	wg.Wait()
	w.say(report{ID: o.ID, Kind: "looped"})
}

// mix runs random operations on a few keys until the worker is stopped or killed.
func (w *worker) mix(o order) {
	var wg sync.WaitGroup
	for range o.N {
		wg.Go(func() {
			for !w.stopped() {
				w.mixed(o)
			}
		})
	}
	w.say(report{ID: o.ID, Kind: "mixing"})
	wg.Wait()
	w.say(report{ID: o.ID, Kind: "mixed"})
}

func (w *worker) mixed(o order) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	key := fmt.Sprintf("%s:%d", o.Key, rand.N(3))
	opts := []core.AcquireOption{core.TTL(o.TTL), core.Wait(rand.N(20 * time.Millisecond))}
	nest := false
	switch rand.N(6) {
	case 0:
		opts = append(opts, core.Shared())
	case 1:
		key += ":permits"
		opts = append(opts, core.Permits(1, 2))
	case 2:
		opts = append(opts, core.Fair())
	case 3:
		opts = append(opts, core.KeepFor(time.Millisecond+rand.N(10*time.Millisecond)))
	case 4:
		opts = append(opts, core.Also(key+":also"))
	default:
		nest = true
	}
	lease, err := w.locker.Acquire(ctx, key, opts...)
	if err != nil {
		return
	}
	if nest {
		if inner, err := w.locker.Acquire(lease.Context(), key, opts...); err == nil {
			defer inner.Release(ctx)
		}
	}
	switch rand.N(3) {
	case 0:
		_ = lease.Extend(ctx, o.TTL)
	case 1:
		time.Sleep(rand.N(5 * time.Millisecond))
	}
	_ = lease.Release(ctx)
}

// crowd holds n keys until the worker is stopped, and reports the numbers of lost leases,
// of goroutines and of extensions.
func (w *worker) crowd(o order) {
	ctx := context.Background()
	leases := make([]*core.Lease, o.N)
	var wg sync.WaitGroup
	var refused atomic.Int64
	for part := range 32 {
		wg.Go(func() {
			for i := part; i < o.N; i += 32 {
				var err error
				if leases[i], err = w.locker.Acquire(ctx, fmt.Sprintf("%s:%d", o.Key, i), o.options()...); err != nil {
					refused.Add(1)
				}
			}
		})
	}
	wg.Wait()
	calls, claims := w.store.calls.Load(), w.store.claims.Load()
	w.say(report{ID: o.ID, Kind: "held", Count: map[string]int{"refused": int(refused.Load())}})
	most := 0
	for !w.stopped() {
		most = max(most, runtime.NumGoroutine())
		time.Sleep(20 * time.Millisecond)
	}
	lost := 0
	for _, l := range leases {
		if l != nil && l.Context().Err() != nil {
			lost++
		}
	}
	w.say(report{ID: o.ID, Kind: "crowd", Count: map[string]int{
		"goroutines": most, "lost": lost,
		"calls": int(w.store.calls.Load() - calls), "claims": int(w.store.claims.Load() - claims),
	}})
}

// churn runs n random operations, and reports the resources in use before and after them.
func (w *worker) churn(o order) {
	run := func(n int) {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range n / 16 {
					w.mixed(o)
				}
			})
		}
		wg.Wait()
	}
	run(max(160, o.N/10))
	before := w.measure()
	run(o.N)
	// Background clean-ups need a moment.
	after := w.measure()
	for end := mono() + int64(20*time.Second); after["goroutines"] > before["goroutines"] && mono() < end; {
		time.Sleep(50 * time.Millisecond)
		after = w.measure()
	}
	w.say(report{ID: o.ID, Kind: "before", Count: before})
	w.say(report{ID: o.ID, Kind: "after", Count: after})
}

func (w *worker) measure() map[string]int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/dev/fd")
	return map[string]int{
		"goroutines": runtime.NumGoroutine(), "files": len(files), "heap": int(m.HeapAlloc),
		"connections": int(w.client.PoolStats().TotalConns),
	}
}
