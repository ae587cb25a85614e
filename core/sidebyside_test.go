package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// farTrip is the duration of a round trip to the store in the tests of this file.
const farTrip = 15 * time.Millisecond

func far(s *scripted) { s.setAll(slow(farTrip/2, farTrip-farTrip/2)) }

// together acquires n leases of order:1 at the same time.
func together(t *testing.T, l *core.Locker, n int, o ...core.AcquireOption) []*core.Lease {
	t.Helper()
	leases := make([]*core.Lease, n)
	var wg sync.WaitGroup
	for i := range leases {
		wg.Go(func() {
			var err error
			if leases[i], err = l.Acquire(t.Context(), "order:1", o...); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return leases
}

func releaseAll(t *testing.T, leases []*core.Lease) {
	t.Helper()
	var wg sync.WaitGroup
	for _, lease := range leases {
		wg.Go(func() { release(t, lease) })
	}
	wg.Wait()
}

func TestSideBySide(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts  []core.AcquireOption
		trips time.Duration
		most  int // the maximum number of calls in flight at once
	}{
		// At first one caller may ask, then 17, and then all 32. When one of the 17
		// callers has its answer, other callers can ask before the other 16 have
		// returned.
		"readers":          {opts(core.Shared()), 3, 32},
		"readers that try": {opts(core.Shared(), core.Wait(0)), 3, 32},
		"fair readers":     {opts(core.Shared(), core.Fair()), 6, 16},
		"permits":          {opts(core.Permits(2, 64)), 6, 16},
		"fair permits":     {opts(core.Permits(2, 64), core.Fair()), 32, 1},
		"exclusive":        {nil, 0, 1},
	} {
		if c.trips == 0 {
			continue // see TestQueue
		}
		sim(t, name, func(t *testing.T) {
			l, s := setup(t)
			far(s)
			start := time.Now()
			leases := together(t, l, 32, c.opts...)
			if took := time.Since(start); took > c.trips*farTrip {
				t.Errorf("32 callers took %v, want at most %d round trips", took, c.trips)
			}
			if most := s.atMost(); most > c.most {
				t.Errorf("%d calls at once, want at most %d", most, c.most)
			}
			if n := s.count(opAcquire); n != 32 {
				t.Errorf("%d questions, want 32", n)
			}
			releaseAll(t, leases)
			wantFree(t, s.inner, "order:1")
		})
	}
	sim(t, "one key against own keys", func(t *testing.T) {
		l, s := setup(t)
		far(s)
		length := time.Duration(tally.AllTrials(10)) * 300 * time.Millisecond
		cycles := func(key func(i int) string) int64 {
			var n atomic.Int64
			var wg sync.WaitGroup
			end := time.Now().Add(length)
			for i := range 48 {
				wg.Go(func() {
					for time.Now().Before(end) {
						release(t, acquire(t, t.Context(), l, key(i), core.Shared()))
						n.Add(1)
					}
				})
			}
			wg.Wait()
			return n.Load()
		}
		one := cycles(func(int) string { return "order:1" })
		own := cycles(func(i int) string { return fmt.Sprint("own:", i) })
		if 10*one < 6*own {
			t.Errorf("%d cycles of one key, %d of own keys, want at least 0.6 of them", one, own)
		}
	})
	sim(t, "most calls at once", func(t *testing.T) {
		l, s := setup(t)
		far(s)
		leases := together(t, l, 60, core.Shared())
		if most := s.atMost(); most != 32 {
			t.Errorf("%d calls at once, want 32", most)
		}
		releaseAll(t, leases)
	})
	sim(t, "permits stay within their number", func(t *testing.T) {
		l, s := setup(t)
		far(s)
		var out, most atomic.Int32
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				for range 5 {
					lease := acquire(t, t.Context(), l, "order:1", core.Permits(1, 8))
					raise(&most, out.Add(1))
					time.Sleep(50 * time.Millisecond)
					out.Add(-1)
					release(t, lease)
				}
			})
		}
		wg.Wait()
		if most.Load() != 8 {
			t.Errorf("%d permits were out at once, want 8", most.Load())
		}
		if n := s.count(opAcquire); n > 500 {
			t.Errorf("%d questions for 200 grants, want at most 500", n)
		}
	})
}

func TestSideBySide_WriterBetween(t *testing.T) {
	t.Parallel()
	sim(t, "served in order", func(t *testing.T) {
		l, s := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, s.inner), "order:1")
		far(s)
		var mu sync.Mutex
		var served []int
		var wg sync.WaitGroup
		for i := range 21 {
			wg.Go(func() {
				o := opts(core.Shared())
				if i == 10 {
					o = nil
				}
				lease := acquire(t, t.Context(), l, "order:1", o...)
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				time.Sleep(100 * time.Millisecond)
				release(t, lease)
			})
			synctest.Wait() // this caller is in the queue before the next one comes
		}
		time.Sleep(time.Second)
		start := time.Now()
		release(t, holder)
		wg.Wait()
		if len(served) != 21 || served[10] != 10 || slices.Max(served[:10]) != 9 {
			t.Errorf("served in the order %v, want the writer, 10, after those before it and before those after it", served)
		}
		// Three groups get the key one after the other: readers, the writer, and
		// readers. Each group takes 100 ms and some round trips.
		if took := time.Since(start); took > 3*(100+6*15)*time.Millisecond {
			t.Errorf("got all after %v", took)
		}
		wantFree(t, s.inner, "order:1")
	})
	// Readers that come after a writer wait behind it, even if earlier readers are
	// still asking.
	sim(t, "readers wait behind the writer", func(t *testing.T) {
		l, s := setup(t)
		far(s)
		var wg sync.WaitGroup
		var writer, early atomic.Bool
		reader := func() {
			wg.Go(func() {
				lease := acquire(t, t.Context(), l, "order:1", core.Shared())
				time.Sleep(10 * farTrip)
				release(t, lease)
			})
		}
		for range 8 {
			reader()
		}
		time.Sleep(farTrip + time.Millisecond) // the other seven readers ask
		wg.Go(func() {
			lease := acquire(t, t.Context(), l, "order:1")
			writer.Store(true)
			release(t, lease)
		})
		synctest.Wait()
		for range 8 {
			wg.Go(func() {
				lease := acquire(t, t.Context(), l, "order:1", core.Shared())
				if !writer.Load() {
					early.Store(true)
				}
				release(t, lease)
			})
		}
		wg.Wait()
		if early.Load() {
			t.Error("a later reader overtook the writer")
		}
	})
}

func TestSideBySide_Busy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opt  core.AcquireOption
		most int // the maximum number of requests before only the head asks
	}{
		"readers": {core.Shared(), 1 + 16 + 3},
		"permits": {core.Permits(1, 64), 1 + 2 + 3},
	} {
		sim(t, "one head asks after it "+name, func(t *testing.T) {
			watcher := new(recorder)
			l, s := setup(t, core.WithObserver(watcher))
			far(s)
			var taken atomic.Bool // the key is taken by another process
			s.set(func(_ context.Context, _ int, do func() error) error {
				time.Sleep(farTrip)
				if taken.Swap(true) {
					return &core.BusyError{RetryAfter: 30 * time.Second}
				}
				return do()
			}, opAcquire)
			var wg sync.WaitGroup
			for range 48 {
				wg.Go(func() {
					lease, err := l.Acquire(t.Context(), "order:1", c.opt)
					if err != nil {
						t.Error(err)
						return
					}
					release(t, lease)
				})
			}
			time.Sleep(time.Second)
			if n := s.count(opAcquire); n > c.most {
				t.Errorf("%d questions, want at most %d", n, c.most)
			}
			s.forget()
			time.Sleep(time.Minute)
			if n := s.count(opAcquire); n > 32 || n < 26 {
				t.Errorf("%d questions in a minute, want about 29, of one head", n)
			}
			if n := s.atMost(); n != 1 {
				t.Errorf("%d questions at once, want 1", n)
			}
			far(s) // the other process has released the key
			start := time.Now()
			wg.Wait()
			if took := time.Since(start); took > pollTime+pollTime/10+10*farTrip {
				t.Errorf("the others were served after %v", took)
			}
			// All callers except the first waited.
			if n := len(watcher.all(core.Busy)); n != 47 {
				t.Errorf("%d Busy events, want 47", n)
			}
			for _, e := range watcher.all(core.Acquired) {
				if e.Wait < time.Second && e.Contended {
					t.Errorf("contended after %v", e.Wait)
				}
			}
		})
	}
	// A heavy head that was refused is overtaken only by callers that asked before the
	// refusal.
	sim(t, "refused heavy head", func(t *testing.T) {
		l, s := setup(t)
		other := acquire(t, t.Context(), newLocker(t, s.inner), "order:1", core.Permits(4, 10))
		type first struct{}
		s.set(func(ctx context.Context, _ int, do func() error) error {
			// The first request with the heavy claim is refused while the waiter behind
			// it asks. The second request takes longer than the waiter's request.
			done, heavy := ctx.Value(first{}).(*atomic.Bool)
			switch {
			case !heavy:
				time.Sleep(farTrip)
			case done.Swap(true):
				time.Sleep(2 * farTrip)
			}
			return do()
		}, opAcquire)
		var mu sync.Mutex
		var served []int
		var wg sync.WaitGroup
		for i, permits := range []int{1, 7, 1, 1, 1, 1, 1} {
			wg.Go(func() {
				ctx := t.Context()
				if permits > 1 {
					ctx = context.WithValue(ctx, first{}, new(atomic.Bool))
				}
				lease := acquire(t, ctx, l, "order:1", core.Permits(permits, 10))
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				time.Sleep(time.Second)
				release(t, lease)
			})
			synctest.Wait() // this caller is in the queue before the next one comes
		}
		time.Sleep(500 * time.Millisecond)
		mu.Lock()
		// The third caller had already asked when the heavy claim was refused.
		if fmt.Sprint(served) != "[0 2]" {
			t.Errorf("served %v before the heavy one, want 0 and 2", served)
		}
		mu.Unlock()
		release(t, other)
		wg.Wait()
		if served[2] != 1 {
			t.Errorf("served in the order %v, want the heavy one, 1, as the third", served)
		}
		wantFree(t, s.inner, "order:1")
	})
	// Waiters that were refused beside the head keep their places in a full queue.
	sim(t, "own places in a full queue", func(t *testing.T) {
		_, s := setup(t)
		l := newLocker(t, s, core.WithMaxWaiting(2, 0))
		held := acquire(t, t.Context(), l, "order:1", core.Shared())
		var open atomic.Bool
		s.set(func(_ context.Context, n int, do func() error) error {
			time.Sleep(farTrip)
			if n > 3 && !open.Load() {
				return &core.BusyError{RetryAfter: 30 * time.Second}
			}
			return do()
		}, opAcquire)
		var wg sync.WaitGroup
		var served, refused atomic.Int32
		ask := func(n int) {
			for range n {
				wg.Go(func() {
					lease, err := l.Acquire(t.Context(), "order:1", core.Shared())
					if err != nil {
						wantErr(t, err, core.ErrBusy)
						refused.Add(1)
						return
					}
					served.Add(1)
					release(t, lease)
				})
			}
		}
		// The grants of the first three allow the other callers to ask at once.
		ask(3)
		time.Sleep(farTrip + time.Millisecond) // two of the three ask
		ask(7)
		time.Sleep(time.Second)
		if n, r := served.Load(), refused.Load(); n != 3 || r != 0 {
			t.Errorf("%d were served and %d refused, want 3 and none", n, r)
		}
		ask(1) // finds six waiting callers, and is refused
		synctest.Wait()
		if n := refused.Load(); n != 1 {
			t.Errorf("%d that came later were refused, want 1", n)
		}
		open.Store(true)
		wg.Wait()
		if n := served.Load(); n != 10 {
			t.Errorf("%d were served, want 10", n)
		}
		release(t, held)
	})
}

// pollTime is the minimum time after which a head asks again without a wake-up. The
// maximum is a tenth longer.
const pollTime = 2 * time.Second

// hungCall is the context key that marks the caller whose calls hang.
type hungCall struct{}

func TestSideBySide_Faults(t *testing.T) {
	t.Parallel()
	// A grant is released if it comes after its caller has left.
	sim(t, "late grant after the cancel", func(t *testing.T) {
		l, s := setup(t)
		s.set(func(ctx context.Context, n int, do func() error) error {
			if n > 1 && n < 8 {
				return late(time.Second)(ctx, n, do)
			}
			return slow(farTrip, 0)(ctx, n, do)
		}, opAcquire)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var leases []*core.Lease
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				lease, err := l.Acquire(ctx, "order:1", core.Shared())
				if err != nil {
					wantErr(t, err, context.Canceled)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				leases = append(leases, lease)
			})
		}
		time.Sleep(10 * farTrip)
		cancel()
		wg.Wait()
		if len(leases) != 26 {
			t.Errorf("%d have the lease, want 26", len(leases))
		}
		s.setAll(nil)
		releaseAll(t, leases)
		time.Sleep(2 * time.Second) // the late grants come and are released
		if d := freeAfter(s.inner, "order:1"); d > time.Second {
			t.Errorf("free after %v more", d)
		}
	})
	sim(t, "lost replies", func(t *testing.T) {
		l, s := setup(t)
		s.set(func(ctx context.Context, n int, do func() error) error {
			if n > 1 && n < 12 {
				time.Sleep(farTrip)
				return loseReply(ctx, n, do)
			}
			return slow(farTrip, 0)(ctx, n, do)
		}, opAcquire)
		leases := together(t, l, 32, core.Shared())
		s.setAll(nil)
		releaseAll(t, leases)
		wantFree(t, s.inner, "order:1")
	})
	sim(t, "refusing store", func(t *testing.T) {
		l, s := setup(t)
		s.set(func(ctx context.Context, n int, do func() error) error {
			if n > 1 {
				time.Sleep(farTrip)
				return refuse(ctx, n, do)
			}
			return slow(farTrip, 0)(ctx, n, do)
		}, opAcquire)
		first := make(chan *core.Lease, 1)
		go func() { first <- acquire(t, t.Context(), l, "order:1", core.Shared()) }()
		synctest.Wait()
		granted, busy, failed := crowdOf(31, func() error {
			_, err := l.TryAcquire(t.Context(), "order:1", core.Shared())
			return err
		})
		if granted != 0 || busy != 0 || len(failed) != 31 {
			t.Errorf("%d granted, %d busy, %d failed, want 31 failed", granted, busy, len(failed))
		}
		for _, err := range failed {
			if !errors.Is(err, core.ErrUnavailable) {
				t.Error(err)
			}
		}
		s.setAll(nil)
		release(t, <-first)
		wantFree(t, s.inner, "order:1")
	})
	sim(t, "canceled head", func(t *testing.T) {
		l, s := setup(t)
		s.set(func(ctx context.Context, n int, do func() error) error {
			if ctx.Value(hungCall{}) != nil {
				return hang(ctx, n, do)
			}
			return slow(farTrip, 0)(ctx, n, do)
		}, opAcquire)
		first := make(chan *core.Lease, 1)
		go func() { first <- acquire(t, t.Context(), l, "order:1", core.Shared()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), hungCall{}, true), 10*farTrip)
		defer cancel()
		hung := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, "order:1", core.Shared())
			hung <- err
		}()
		synctest.Wait()
		start := time.Now()
		leases := together(t, l, 30, core.Shared())
		if took := time.Since(start); took > 4*farTrip {
			t.Errorf("those beside a hung head took %v", took)
		}
		wantErr(t, <-hung, context.DeadlineExceeded)
		releaseAll(t, append(leases, <-first, acquire(t, t.Context(), l, "order:1", core.Shared())))
		if d := freeAfter(s.inner, "order:1"); d > time.Second {
			t.Errorf("free after %v", d)
		}
	})
	// If a caller beside the head gets the error of a known outage, the callers behind
	// get the same error.
	sim(t, "outage seen beside the head", func(t *testing.T) {
		l, s := setup(t)
		type role struct{}
		s.set(func(ctx context.Context, n int, do func() error) error {
			switch ctx.Value(role{}) {
			case "head":
				time.Sleep(10 * farTrip)
			case "earlier":
				time.Sleep(farTrip)
				if n < 5 {
					return &core.BusyError{RetryAfter: 30 * time.Second}
				}
			case "asks":
				time.Sleep(2 * farTrip)
				return refuseAtOnce(ctx, n, do)
			default:
				time.Sleep(farTrip)
			}
			return do()
		}, opAcquire)
		ends := make(map[string]error)
		var mu sync.Mutex
		var wg sync.WaitGroup
		ask := func(as string) {
			wg.Go(func() {
				lease, err := l.Acquire(context.WithValue(t.Context(), role{}, as), "order:1", core.Shared())
				if err == nil {
					release(t, lease)
				}
				mu.Lock()
				defer mu.Unlock()
				ends[as] = err
			})
			synctest.Wait() // this caller is in the queue before the next one comes
		}
		for _, as := range []string{"first", "head", "earlier", "asks"} {
			ask(as) // the grant of the first caller lets the others ask together
		}
		time.Sleep(2*farTrip + time.Millisecond) // the caller named earlier is refused
		ask("behind")
		wg.Wait()
		wantErr(t, ends["asks"], core.ErrUnavailable)
		wantErr(t, ends["behind"], core.ErrUnavailable)
		for _, as := range []string{"first", "head", "earlier"} {
			if err := ends[as]; err != nil {
				t.Errorf("the %s one got %v, want a lease", as, err)
			}
		}
	})
	// Only the head gets a place in the store's list.
	sim(t, "places of the head", func(t *testing.T) {
		l, s := setup(t)
		far(s)
		leases := together(t, l, 32, core.Shared(), core.Fair())
		alone := 0
		for _, c := range s.sent(opAcquire) {
			if claim := c.claims[0]; claim.Wait {
				alone++
			}
		}
		if alone != 1 {
			t.Errorf("%d claims ask for a place, want 1", alone)
		}
		releaseAll(t, leases)
	})
}
