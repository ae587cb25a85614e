package casstore

import (
	"cmp"
	"context"
	"sync"
	"time"
)

const (
	// sweepPause is the minimum time between two sweeps. betweenPages replaces it if
	// the last sweep has left dead entries.
	sweepPause   = time.Minute
	betweenPages = 10 * time.Second
	// settling is the minimum time between raising the floor of tokens and deleting
	// entries below it. By then, every call that has read the older floor has returned.
	settling   = 10 * time.Second
	sweepLimit = 5 * time.Second
	sweepPage  = 1000
)

// sweeper deletes entries in which everything has expired. Acquires start its work,
// which runs in the background.
type sweeper struct {
	place   Sweeper
	mu      sync.Mutex
	next    time.Time // the earliest time of the next sweep
	working bool
	closed  bool
	stop    context.CancelFunc
	work    sync.WaitGroup
	// floor is the token to which this Store last raised the floor, at the time raised.
	// It is 0 before the first raise.
	floor  uint64
	raised time.Time
	page   int // the maximum number of entries that one step deletes; 0 for sweepPage
}

// sweep begins a sweep if the next sweep is due.
func (s *Store) sweep() {
	w := &s.sweeper
	if w.place == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.working || time.Now().Before(w.next) {
		return
	}
	ctx, stop := context.WithTimeoutCause(context.Background(), sweepLimit, errNoAnswer)
	w.working, w.stop = true, stop
	w.work.Go(func() {
		defer stop()
		more := s.sweepAll(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.working, w.next = false, time.Now().Add(sweepPause)
		if more {
			w.next = time.Now().Add(betweenPages)
		}
	})
}

// sweepAll deletes dead entries with a token up to the floor, if the floor was raised
// long enough ago (settling). For dead entries that may not be deleted yet, it raises
// the floor for the next sweep, and stops. It reports whether the next sweep has to
// follow soon. It also stops after an error, and if it deleted at most half of the
// entries that it tried to delete. In that case another process probably deletes the
// same entries. After a Delete that failed, the next page is a quarter as long. Long
// values can be too much for one step.
func (s *Store) sweepAll(ctx context.Context) (more bool) {
	w := &s.sweeper
	settled := w.floor > 0 && time.Since(w.raised) >= settling
	for {
		page := cmp.Or(w.page, sweepPage)
		items, err := do(ctx, s, func(ctx context.Context) ([]Item, error) { return w.place.Dead(ctx, page) })
		switch {
		case err != nil:
			return ctx.Err() != nil // the time was too short for all entries
		case len(items) == 0:
			return false
		}
		var gone []Item
		var highest uint64
		for _, item := range items {
			now := time.UnixMicro(item.Now.UnixMicro())
			item.Now = now
			state, err := decode(item.Entry)
			if err != nil || !state.Empty(now) {
				continue
			}
			if !settled || state.Token > w.floor {
				highest = max(highest, state.Token, uint64(now.UnixMicro()))
				continue
			}
			gone = append(gone, item)
		}
		deleted := 0
		if len(gone) > 0 {
			deleted, err = do(ctx, s, func(ctx context.Context) (int, error) { return w.place.Delete(ctx, gone) })
			if err != nil {
				w.page = max(1, page/4)
				return true
			}
			w.page = min(2*page, sweepPage)
		}
		if highest > 0 {
			_, err := do(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, w.place.Raise(ctx, highest) })
			if err == nil {
				w.floor, w.raised = highest, time.Now()
			}
			return true
		}
		switch {
		case len(gone) == 0 || len(items) < page:
			return false
		case deleted <= len(gone)/2:
			return true
		}
	}
}

// close ends the sweep in flight.
func (w *sweeper) close() {
	w.mu.Lock()
	w.closed = true
	if w.stop != nil {
		w.stop()
	}
	w.mu.Unlock()
	w.work.Wait()
}
