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

// open opens the watch within the time most and before the end of the wait, and reports
// whether it has done so. It does nothing and returns false if the watch is open already
// or has failed recently, or if the store has no wake-ups.
func (w *watch) open(a *attempt, c *store.Claim, most time.Duration) bool {
	store, ok := a.engine.store.(store.Watcher)
	if !ok || w.live() || time.Now().Before(w.reopen) {
		return false
	}
	if !a.until.IsZero() {
		most = min(most, time.Until(a.until))
	}
	ctx, cancel := context.WithCancel(a.ctx)
	limit := time.AfterFunc(most, cancel)
	wakeUps, err := store.Watch(ctx, *c)
	if late := !limit.Stop(); late || err != nil {
		cancel()
		w.failed(a, !late || most > earlyLimit)
		return false
	}
	a.engine.waiters.setWakeable(true)
	w.wakeUps, w.cancel = wakeUps, cancel
	return true
}

// failed closes a watch that did not open, or that the store has closed. The watch is
// not reopened for pollEvery, because it would probably fail again. broken reports
// whether other watches would probably fail too.
func (w *watch) failed(a *attempt, broken bool) {
	w.close()
	w.reopen = time.Now().Add(pollEvery)
	if broken && a.ctx.Err() == nil && a.lastsFor(0) {
		a.engine.waiters.setWakeable(false)
	}
}

// retry lets open reopen the watch at once after a failure.
func (w *watch) retry() { w.reopen = time.Time{} }

func (w *watch) close() {
	if w.cancel != nil {
		w.cancel()
	}
	w.wakeUps, w.cancel = nil, nil
}

// wakeUpWait returns the maximum time to wait for a wake-up before the next request.
// The time is pollEvery to pollMax, by the number of waiters, plus at most a tenth. If
// the hold expires earlier, the time ends soon after the expiry, because an expiry
// wakes no waiter. If there are many waiters, the expiry counts only for some waiters,
// chosen at random, and for a waiter that was woken.
func wakeUpWait(busy *BusyError, woken bool) time.Duration {
	d := min(max(pollEvery, time.Duration(busy.Waiting)*time.Second/pollShare), pollMax)
	d += rand.N(d / 10)
	if holder := busy.RetryAfter; holder > 0 && (woken || rand.N(max(busy.Waiting, 1)) < pollShare) {
		d = min(d, max(holder, endMargin)+rand.N(endSpread))
	}
	return d
}
