package core

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/due"
	"github.com/lockkit/lockkit/core/internal/order"
	"github.com/lockkit/lockkit/core/store"
)

// batch bounds the number of holds in one Extend.
const batch = 512

// firstCalls is the number of concurrent calls with which extendAll begins.
const firstCalls = 8

// watchdog extends the holds of a Locker. It has one timer, and a queue of holds sorted
// by due time. Holds that are due together are extended in batches, by several
// concurrent calls, so that a hanging call hardly delays the other holds. While a call
// extends a hold, the hold is queued for the end of its trust. So a hanging call does
// not delay the loss of the hold.
type watchdog struct {
	keeper *keeper

	mu       order.Mutex[watchdogRank]
	queue    due.Queue[hold]
	epoch    time.Time // the zero point of the due times and of the field at
	timer    *time.Timer
	at       time.Duration // the time at which timer fires; 0 if it is not set
	inFlight count         // goroutines that run fire or extend holds
	lastLook clock.Moment  // the last check of the clock for a suspension

	ctx    context.Context // the context of all calls
	cancel context.CancelFunc
}

// alarm is the watchdog's part of a hold.
type alarm struct {
	early time.Duration    // the watchdog may check the hold this long before the due time
	entry *due.Entry[hold] // nil if the hold is not in the queue
}

func (w *watchdog) init(k *keeper) {
	w.keeper, w.epoch = k, time.Now()
	w.ctx, w.cancel = context.WithCancel(context.Background())
}

// schedule schedules the watchdog's check of h at the given time, or at most the time
// early before that. The caller holds the mutex of h.
func (w *watchdog) schedule(h *hold, at time.Time, early time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.alarm.early = early
	w.queue.Remove(h.alarm.entry)
	h.alarm.entry = w.queue.Add(at.Sub(w.epoch), h)
	w.set()
}

// remove takes h out of the queue. It does not reset the timer, because one firing
// without a due hold costs less than a reset for every lease.
func (w *watchdog) remove(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.Remove(h.alarm.entry)
	h.alarm.entry = nil
}

// set sets the timer to the due time of the first hold, or to the next check for a
// suspension if that is earlier. The caller holds the mutex.
func (w *watchdog) set() {
	at, h := w.queue.First()
	if h == nil || w.at > 0 && w.at <= at {
		return
	}
	now := time.Since(w.epoch)
	at = min(at, now+lookEvery)
	w.at = at
	if w.timer == nil {
		w.timer = time.AfterFunc(at-now, w.fire)
	} else {
		w.timer.Reset(at - now)
	}
}

// fire begins to extend the holds that are due. It loses a hold that is no longer
// trusted.
func (w *watchdog) fire() {
	w.afterSuspension()
	var holds []*hold
	w.mu.Lock()
	until := time.Since(w.epoch)
	for {
		at, h := w.queue.First()
		// Holds that are due a little later are extended too.
		if h == nil || at > until+h.alarm.early {
			break
		}
		w.queue.Remove(h.alarm.entry)
		h.alarm.entry = nil
		holds = append(holds, h)
	}
	w.at = 0
	w.inFlight.add(1) // for fire itself, until the calls are started
	defer w.callEnded()
	w.set()
	w.mu.Unlock()

	// now is read after until: a hold due at the end of its trust is untrusted at now.
	now := w.keeper.now()
	w.extendAll(slices.DeleteFunc(holds, func(h *hold) bool { return !h.due(now, toEnd) }))
}

// extendAll begins to extend holds in batches, with firstCalls concurrent calls. While
// batches are left, the number of calls doubles after each pause (raisePause). So few
// goroutines suffice for a store that answers quickly, and hanging calls do not delay
// the other batches for long.
func (w *watchdog) extendAll(holds []*hold) {
	if len(holds) == 0 {
		return
	}
	// The shortest TTL in a batch limits the batch's call, so similar TTLs go into one
	// batch.
	slices.SortStableFunc(holds, func(a, b *hold) int { return cmp.Compare(a.ttl, b.ttl) })
	pause := raisePause(holds[0].ttl)
	left := make(chan []*hold, len(holds)/batch+1)
	for b := range slices.Chunk(holds, batch) {
		left <- b
	}
	close(left)
	work := func() {
		defer w.callEnded()
		for b := range left {
			w.extend(b)
		}
	}
	var raise func(from, to int)
	raise = func(from, to int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := len(left)
		for range min(to-from, n) {
			w.inFlight.add(1)
			go work()
		}
		if to-from < n {
			time.AfterFunc(pause, func() { raise(to, 2*to) })
		}
	}
	raise(0, firstCalls)
}

// extend extends a batch in one call. The time limit of the call is the least budget or
// the least remaining trust of the holds, whichever is less.
func (w *watchdog) extend(holds []*hold) {
	now := w.keeper.now()
	limit := budget(maxTTL)
	holds = slices.DeleteFunc(holds, func(h *hold) bool {
		left := h.remaining(now)
		if left == 0 || !w.needsExtension(h, now) {
			return true
		}
		limit = min(limit, budget(h.ttl), left)
		return false
	})
	if len(holds) == 0 {
		return
	}
	start, answers := w.keeper.extendHolds(w.ctx, limit, 0, holds)
	for i, h := range holds {
		w.answered(h, start, answers[i])
	}
}

// needsExtension reports whether h has to be extended. h must be trusted.
func (w *watchdog) needsExtension(h *hold, now clock.Moment) bool {
	lease := h.leaseNow()
	return lease == nil || lease.extends(now) // without a lease, h is about to go to the next lease
}

// answered handles the answer x to an extension of h that began at start. It schedules
// the next extension and notifies the lease. If h is lost, retired or no longer
// trusted, it does neither.
func (w *watchdog) answered(h *hold, start clock.Moment, x store.Extension) {
	if errors.Is(x.Err, ErrLost) {
		h.lose()
		return
	}
	pause := h.toRetry
	if x.Err == nil {
		pause = func(now clock.Moment) time.Duration {
			// After Lease.Extend with a longer TTL, h.valid can be older and longer
			// than the validity of this extension. toExtend can then return a negative
			// pause. In that case the validity of this extension determines the pause.
			if d := h.toExtend(now); d > 0 {
				return d
			}
			return x.Valid/3 - now.Since(start)
		}
	}
	if !h.due(w.keeper.now(), pause) {
		return
	}
	if lease := h.leaseNow(); lease != nil {
		lease.extended(x.Err)
	}
}

func (w *watchdog) callEnded() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight.add(-1)
}

// stop stops the timer and cancels the calls in flight. It reports whether the calls
// returned before ctx was done.
func (w *watchdog) stop(ctx context.Context) bool {
	w.cancel()
	w.mu.Lock()
	if w.timer != nil {
		w.timer.Stop()
		w.at = 0
	}
	landed := w.inFlight.zero()
	w.mu.Unlock()
	return done(ctx, landed)
}

// afterSuspension makes all holds due at once if the machine was suspended since the
// last check. Timers stand still during a suspension. fire then extends or loses each
// hold.
func (w *watchdog) afterSuspension() {
	now := w.keeper.now()
	w.mu.Lock()
	slept := now.Slept(w.lastLook)
	w.lastLook = now
	var holds []*hold
	if slept {
		holds = w.queue.All()
	}
	w.mu.Unlock()
	for _, h := range holds {
		h.due(now, func(clock.Moment) time.Duration { return 0 })
	}
}
