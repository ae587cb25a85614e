package core

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// watch receives the store's wake-ups for the head of a queue. The zero watch is
// closed.
type watch struct {
	wakeUps <-chan struct{} // nil while closed
	cancel  context.CancelFunc
	reopen  time.Time // the watch is not opened before this time
}

func (w *watch) live() bool { return w.wakeUps != nil }

// open opens the watch within the time most, and reports whether the watch was opened.
// It does nothing if the watch is open or has failed recently, or if the store has no
// wake-ups.
func (w *watch) open(a *attempt, c *store.Claim, most time.Duration) bool {
	store, ok := a.engine.store.(store.Watcher)
	if !ok || w.live() || time.Now().Before(w.reopen) {
		return false
	}
	ctx, cancel := context.WithCancel(a.ctx)
	limit := time.AfterFunc(most, cancel)
	wakeUps, err := store.Watch(ctx, *c)
	if !limit.Stop() || err != nil {
		cancel()
		w.failed(a)
		return false
	}
	a.engine.waiters.wakeable.Store(true)
	w.wakeUps, w.cancel = wakeUps, cancel
	return true
}

// failed closes a watch that did not open in time, or that the store has closed. The
// watch is not reopened for pollEvery, because it may fail again.
func (w *watch) failed(a *attempt) {
	w.close()
	w.reopen = time.Now().Add(pollEvery)
	if a.ctx.Err() == nil {
		a.engine.waiters.wakeable.Store(false)
	}
}

// retry allows the watch to be reopened at once after a failure.
func (w *watch) retry() { w.reopen = time.Time{} }

func (w *watch) close() {
	if w.cancel != nil {
		w.cancel()
	}
	w.wakeUps, w.cancel = nil, nil
}

// wakeUpWait returns the time to wait for a wake-up before the next request. The rest
// of the holder's time bounds the wait, because a hold that expires wakes no waiter. If
// there are many waiters, this bound applies only to a few of them, chosen at random,
// and to a waiter that was woken.
func wakeUpWait(busy *BusyError, woken bool) time.Duration {
	d := min(max(pollEvery, time.Duration(busy.Waiting)*time.Second/pollShare), pollMax)
	d += rand.N(d / 10)
	if holder := busy.RetryAfter; holder > 0 && (woken || rand.N(max(busy.Waiting, 1)) < pollShare) {
		d = min(d, max(holder, endMargin)+rand.N(endSpread))
	}
	return d
}
