package sqltest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// asked is a store that records the times at which its refused requests were sent.
type asked struct {
	*sqlstore.Store
	mu      sync.Mutex
	refused []time.Time
}

func (s *asked) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	sent := time.Now()
	g, err := s.Store.Acquire(ctx, c)
	if errors.Is(err, store.ErrBusy) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused = append(s.refused, sent)
	}
	return g, err
}

func (s *asked) refusedAfter(t time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sent := range s.refused {
		if sent.After(t) {
			n++
		}
	}
	return n
}

// TestWait_KeptKey checks a waiter of a key that stays taken for a time after its
// release. The waiter's first request after that time is granted.
func TestWait_KeptKey(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		s, waits := d.store(t), &asked{Store: d.store(t)}
		l := lockerOn(t, waits)
		c := claim("kept", long)
		if _, err := s.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		var entered time.Time
		var waiter sync.WaitGroup
		defer waiter.Wait()
		waiter.Go(func() {
			lease, err := l.Acquire(t.Context(), c.Key)
			entered = time.Now()
			if err != nil {
				t.Errorf("waiter: got %v, want a lease", err)
				return
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
		testserver.Eventually(t, long, "the waiter has asked", func() bool { return waits.refusedAfter(time.Time{}) > 0 })
		c.Keep = 300 * time.Millisecond
		earliest := time.Now().Add(c.Keep - time.Millisecond)
		if err := s.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		latest := time.Now().Add(c.Keep + time.Millisecond)
		waiter.Wait()
		if entered.Before(earliest) {
			t.Errorf("the waiter has entered %v before the end of the kept time", earliest.Sub(entered))
		}
		if n := waits.refusedAfter(latest); n > 0 {
			t.Errorf("got %d refused requests after the kept time, want none", n)
		}
	})
}
