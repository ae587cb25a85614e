package core

import (
	"context"
	"math/rand/v2"
	"time"
)

// pollEvery is how often a waiter asks although it is watching: a wake-up can
// be lost. Where many wait, each asks more seldom, as one of them will find a key
// that is free: they ask pollShare times a second together, up to pollMost apart.
const (
	pollEvery = 2 * time.Second
	pollShare = 20
	pollMost  = 5 * time.Second
)

// aheadMost is how long a watch may take to open before its caller has asked.
const aheadMost = 50 * time.Millisecond

// watch is the head of a line's view of the store's wake-ups. Its zero value is
// closed.
type watch struct {
	wakeUps <-chan struct{} // nil while closed
	cancel  context.CancelFunc
	reopen  time.Time // not before
}

func (w *watch) live() bool { return w.wakeUps != nil }

// open makes the watch live if the store can within a while, and reports whether
// it has just become so. It does nothing on a live watch, and shortly after it
// failed.
func (w *watch) open(a *attempt, c *Claim, most time.Duration) bool {
	store, ok := a.store.(Watcher)
	if !ok || w.live() || time.Now().Before(w.reopen) {
		return false
	}
	ctx, cancel := context.WithCancel(a.ctx)
	limit := time.AfterFunc(most, cancel)
	wakeUps, err := store.Watch(ctx, *c)
	if !limit.Stop() || err != nil {
		cancel()
		w.reopen = time.Now().Add(pollEvery)
		if a.ctx.Err() == nil {
			a.hears.Store(false)
		}
		return false
	}
	a.hears.Store(true)
	w.wakeUps, w.cancel = wakeUps, cancel
	return true
}

// broke closes a watch that the store has ended. It is not opened again at
// once: it may break each time.
func (w *watch) broke() {
	w.close()
	w.reopen = time.Now().Add(pollEvery)
}

func (w *watch) close() {
	if w.cancel != nil {
		w.cancel()
	}
	w.wakeUps, w.cancel = nil, nil
}

// ahead opens the watch of a lone caller who will probably have to wait. If the
// store is not quick about that, the caller rather asks: the key may be free.
func (w *watch) ahead(a *attempt, c *Claim) {
	if a.hears.Load() && !w.open(a, c, min(budget(c.TTL), aheadMost)) {
		a.hears.Store(false)
		w.reopen = time.Time{}
	}
}

// patience is how long to wait for a wake-up before asking anyway. The holder's
// remaining time bounds it, since nobody is woken when a hold merely expires;
// among many waiters a few ask then.
func patience(busy *BusyError) time.Duration {
	d := min(max(pollEvery, time.Duration(busy.Waiting)*time.Second/pollShare), pollMost)
	d += rand.N(d / 10)
	if holder := busy.RetryAfter; holder > 0 && rand.N(max(busy.Waiting, 1)) < pollShare {
		d = min(d, max(holder, 10*time.Millisecond)+rand.N(5*time.Millisecond))
	}
	return d
}
