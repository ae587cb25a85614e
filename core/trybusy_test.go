package core_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

// try is one TryAcquire of order:1 at a time of the test, with its expected result.
type try struct {
	at      time.Duration
	opts    []core.AcquireOption
	granted bool
}

// TestTryAcquire_Busy checks which callers of a process share a busy answer. A request
// takes two milliseconds, and the store decides after one millisecond.
func TestTryAcquire_Busy(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	whole, part := opts(core.Permits(8, 8)), opts(core.Permits(2, 8))
	exclusive, shared := opts(), opts(core.Shared())
	for name, c := range map[string]struct {
		held      []core.AcquireOption // the options of another process's lease
		until     time.Duration        // the time at which that lease is released
		tries     []try
		questions int
	}{
		"crowd shares the next answer": {
			exclusive, time.Second,
			append([]try{{0, exclusive, false}}, slices.Repeat([]try{{ms, exclusive, false}}, 50)...), 2,
		},
		// Callers that arrive while a request is in flight share the answer to the next
		// request.
		"callers during the question": {
			exclusive, time.Second,
			[]try{{0, exclusive, false}, {ms, exclusive, false}, {ms, exclusive, false}, {3 * ms, exclusive, false}, {3 * ms, exclusive, false}}, 3,
		},
		"answer to an earlier question": {
			exclusive, 3*ms + ms/4, // just after the store has decided the second request
			[]try{{0, exclusive, false}, {ms, exclusive, false}, {ms, exclusive, false}, {3*ms + ms/2, exclusive, true}}, 3,
		},
		"heavier ones have the answer": {
			part, time.Second,
			[]try{{0, part, true}, {ms, opts(core.Permits(5, 8)), false}, {ms, whole, false}, {ms, whole, false}}, 2,
		},
		"lighter ones are asked for": {
			part, time.Second,
			[]try{{0, whole, false}, {ms, whole, false}, {ms, part, true}, {ms, whole, false}}, 3,
		},
		"fair permits have their own weights": {
			part, time.Second,
			[]try{{0, opts(core.Permits(8, 8), core.Fair()), false}, {ms, opts(core.Permits(8, 8), core.Fair()), false}, {ms, opts(core.Permits(2, 8), core.Fair()), true}}, 3,
		},
		"readers after a writer": {
			shared, time.Second,
			[]try{{0, exclusive, false}, {ms, exclusive, false}, {ms, shared, true}, {ms, exclusive, false}}, 3,
		},
		"other limits are asked for": {
			part, time.Second,
			[]try{{0, whole, false}, {ms, whole, false}, {ms, opts(core.Permits(8, 10)), true}}, 3,
		},
	} {
		sim(t, name, func(t *testing.T) {
			l, s := setup(t)
			holder := acquire(t, t.Context(), newLocker(t, s.inner), "order:1", c.held...)
			s.set(slow(ms, ms), opAcquire)
			start := time.Now()
			time.AfterFunc(c.until, func() { release(t, holder) })
			var mu sync.Mutex
			var leases []*core.Lease
			var wg sync.WaitGroup
			for i, try := range c.tries {
				time.Sleep(time.Until(start.Add(try.at)))
				wg.Go(func() {
					lease, err := l.TryAcquire(t.Context(), "order:1", try.opts...)
					if err != nil && !errors.Is(err, core.ErrBusy) || (err == nil) != try.granted {
						t.Errorf("try %d: got %v, want granted: %v", i, err, try.granted)
					}
					if err == nil {
						mu.Lock()
						defer mu.Unlock()
						leases = append(leases, lease)
					}
				})
				synctest.Wait() // this caller is in the queue before the next one comes
			}
			wg.Wait()
			if n := s.count(opAcquire); n != c.questions {
				t.Errorf("got %d questions, want %d", n, c.questions)
			}
			releaseAll(t, leases)
			time.Sleep(time.Second)
			wantFree(t, s.inner, "order:1")
		})
	}
}
