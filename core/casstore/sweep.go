package casstore

import (
	"cmp"
	"context"
	"sync"
	"time"
)

const (
	// sweepPause is the minimum time between two sweeps, and betweenPages if the last
	// one has left something.
	sweepPause   = time.Minute
	betweenPages = 10 * time.Second
	// settling is the minimum time from raising the floor of tokens to deleting entries
	// below it: a call that has read the older floor has returned by then.
	settling = 10 * time.Second
	// sweepLimit bounds the time of a sweep.
	sweepLimit = 5 * time.Second
	sweepPage  = 1000
)

// sweeper deletes entries of which nothing is alive, in the background of acquires.
type sweeper struct {
	place   Sweeper
	mu      sync.Mutex
	next    time.Time // when it may begin
	working bool
	closed  bool
	stop    context.CancelFunc
	work    sync.WaitGroup
	// The floor was raised to this token at this time, or 0.
	floor  uint64
	raised time.Time
	page   int // the number of entries that one step deletes at most; 0 for sweepPage
}

// sweep begins a sweep, if it is time for one.
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

// sweepAll deletes dead entries below the floor, raises the floor for the next time, and
// reports whether something is left. An error ends it: a later sweep does the rest. A page
// of which another process has deleted most ends it too: that process deletes the next
// pages. A page that could not be deleted is followed by a quarter of it: long values can
// be too much for one step.
func (s *Store) sweepAll(ctx context.Context) (more bool) {
	w := &s.sweeper
	settled := w.floor > 0 && time.Since(w.raised) >= settling
	for {
		page := cmp.Or(w.page, sweepPage)
		items, err := do(ctx, s, func(ctx context.Context) ([]Item, error) { return w.place.Dead(ctx, page) })
		switch {
		case err != nil:
			return ctx.Err() != nil // its time was too short for all
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
