package cron_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/examples/recipes/cron"
)

func TestRun(t *testing.T) {
	t.Parallel()
	mem, ran := memstore.New(), map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	three := time.Date(2026, 3, 29, 3, 0, 0, 0, time.UTC)
	for replica := range 3 {
		locks, err := core.New(mem)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := once.New(locks)
		if err != nil {
			t.Fatal(err)
		}
		zone := time.FixedZone("", replica*3600) // each replica has another zone
		wg.Go(func() {
			for night := range 5 {
				due := three.AddDate(0, 0, night).In(zone)
				report := func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					key := due.UTC().String()
					if ran[key]++; night == 2 && ran[key] == 1 {
						return errors.New("the disk is full")
					}
					return nil
				}
				if err := cron.Until(t.Context(), runs, "report", due, time.Millisecond, report); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for night := range 5 {
		want := 1
		if night == 2 {
			want = 2 // the job failed once
		}
		if got := ran[three.AddDate(0, 0, night).String()]; got != want {
			t.Errorf("night %d: ran %d times, want %d", night, got, want)
		}
	}
}
