package core_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// partly is a store in which the releases of one key hang. It refuses the releases of
// all other keys until mend is called.
type partly struct {
	core.Store
	hung string

	mu      sync.Mutex
	mended  bool
	refused map[string]int
}

func (s *partly) Release(ctx context.Context, c store.Claim) error {
	if c.Key == s.hung {
		return hang(ctx, 0, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mended {
		return s.Store.Release(ctx, c)
	}
	s.refused[c.Key]++
	return refuse(ctx, 0, nil)
}

// mend ends the refusals. It returns the number of releases of key that were refused.
func (s *partly) mend(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mended = true
	return s.refused[key]
}

func TestCleanUp_BesideHungRelease(t *testing.T) {
	t.Parallel()
	for _, others := range []int{1, 20} {
		sim(t, fmt.Sprintf("%d other claims", others), func(t *testing.T) {
			s := newScripted(memStore())
			p := &partly{Store: s, hung: "hung:1", refused: map[string]int{}}
			l := newLocker(t, p)
			s.set(hangAfter, opAcquire)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			keys := []string{p.hung}
			for i := range others {
				keys = append(keys, fmt.Sprint("order:", i))
			}
			var wg sync.WaitGroup
			for _, key := range keys {
				wg.Go(func() {
					_, err := l.Acquire(ctx, key)
					wantErr(t, err, core.ErrUnavailable)
				})
			}
			wg.Wait()
			s.setAll(nil)
			time.Sleep(20 * time.Second)
			if n := p.mend("order:0"); n < 100 {
				t.Errorf("got %d releases in 20s, want at least 100", n)
			}
			for _, key := range keys[1:] {
				if d := freeAfter(s.inner, key); d > 110*time.Millisecond {
					t.Errorf("%s: free after %v, want at most 110ms", key, d)
				}
			}
			time.Sleep(time.Minute) // until the cleanup gives up the hung release
		})
	}
}
