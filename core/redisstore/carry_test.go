package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore/redistest"
)

func TestWhoSendsByItselfMeetsOtherTrips(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Client(t, redistest.Start(t).Addr))
	s.Stall(time.Nanosecond) // every trip counts as stalled, so that there are many
	var wg sync.WaitGroup
	for i := range 16 {
		ctx := t.Context()
		if i%2 == 0 {
			ctx = context.Background() // sends by itself
		}
		wg.Go(func() {
			for range 1000 {
				c := claimed()
				if _, err := s.Acquire(ctx, c); err != nil {
					t.Errorf("acquire: %v", err)
				}
				if err := s.Release(ctx, c); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
