package core

import (
	"cmp"
	"container/heap"
	"context"
	"slices"
	"sync"
	"time"
)

// watchdog extends the holds of a Locker. It is one timer over a heap; what is
// due together is extended together, in calls that run beside each other so
// that a hanging one holds up no other for long. It ends nothing: each hold has a
// timer of its own for that, from when it is due for the first time.
type watchdog struct {
	locker *Locker

	mu     sync.Mutex
	queue  dueQueue
	stale  int       // how many of its entries do not count any more
	spare  []*seat   // a few to use again
	epoch  time.Time // what entries count from
	timer  *time.Timer
	at     time.Time     // when timer fires, zero if not at all
	flying int           // goroutines with holds that are not in the queue
	landed chan struct{} // closed when there is none; nil if nobody asks
	asleep time.Duration

	ctx    context.Context // of all calls
	cancel context.CancelFunc
}

// schedule has h looked after at the given time. The caller holds its mutex.
func (w *watchdog) schedule(h *hold, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.early = h.slack()
	w.drop(h)
	if n := len(w.spare); n > 0 {
		h.seat, w.spare = w.spare[n-1], w.spare[:n-1]
	} else {
		h.seat = new(seat)
	}
	h.seat.hold = h
	w.queue = append(w.queue, entry{at.Sub(w.epoch), h.seat})
	heap.Fix(&w.queue, len(w.queue)-1)
	w.set()
}

// remove forgets h. The timer stays, also if it was for the last hold: to fire
// once for nothing costs less than to be set with every lease.
func (w *watchdog) remove(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(h)
}

// set makes the timer fire at the first hold's due time. Where suspension can
// be seen, it fires at least every second to look.
func (w *watchdog) set() {
	for len(w.queue) > 0 && w.queue[0].seat.hold == nil {
		w.pop()
	}
	var at time.Time
	if len(w.queue) > 0 {
		at = w.epoch.Add(w.queue[0].due)
		if !w.at.IsZero() && !at.Before(w.at) {
			return // the next look at the clocks is not sooner either
		}
	}
	if w.locker.clock != nil && len(w.queue)+w.flying > 0 {
		if tick := time.Now().Add(time.Second); at.IsZero() || tick.Before(at) {
			at = tick
		}
	}
	switch {
	case at.IsZero():
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(at), w.fire)
	case w.at.IsZero() || at.Before(w.at):
		w.timer.Reset(time.Until(at))
	default:
		return
	}
	w.at = at
}

// fire extends what is due.
func (w *watchdog) fire() {
	var due []*hold
	var least time.Duration // slack of the shortest of them
	w.mu.Lock()
	now := time.Since(w.epoch)
	for len(w.queue) > 0 {
		// What is due a little later travels along.
		if h := w.queue[0].seat.hold; h != nil && w.queue[0].due > now+h.early {
			break
		}
		if h := w.pop(); h != nil {
			if len(due) == 0 || h.early < least {
				least = h.early
			}
			due = append(due, h)
		}
	}
	w.at = time.Time{}
	if len(due) > 0 {
		w.flying++ // this one, until the calls are sent
		defer w.land()
	}
	w.set()
	w.mu.Unlock()

	for _, h := range due {
		h.guard()
	}
	w.afterSuspension()
	// Neighbours in a batch should be of one length, since the shortest bounds it.
	slices.SortStableFunc(due, func(a, b *hold) int { return cmp.Compare(a.ttl, b.ttl) })
	w.extendAll(slices.Collect(slices.Chunk(due, batch)), least/2)
}

// land counts a goroutine out.
func (w *watchdog) land() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying--
	if w.flying == 0 && w.landed != nil {
		close(w.landed)
		w.landed = nil
	}
}

// stop ends the calls under way, since nobody needs their answers any more. It
// returns true when they have ended, and false when ctx ends before that.
func (w *watchdog) stop(ctx context.Context) bool {
	w.cancel()
	w.mu.Lock()
	if w.timer != nil {
		w.timer.Stop()
		w.at = time.Time{}
	}
	if w.flying == 0 {
		w.mu.Unlock()
		return true
	}
	if w.landed == nil {
		w.landed = make(chan struct{})
	}
	landed := w.landed
	w.mu.Unlock()
	return done(ctx, landed)
}

// afterSuspension has every lease ask the clocks, and set its timers anew, if the
// machine was suspended since the last look: the timers stood still.
func (w *watchdog) afterSuspension() {
	if w.locker.clock == nil {
		return
	}
	asleep := w.locker.clock().asleep
	w.mu.Lock()
	jumped := asleep-w.asleep > blink
	w.asleep = asleep
	w.mu.Unlock()
	if jumped {
		for _, lease := range w.locker.held() {
			for _, h := range lease.holds {
				h.check()
			}
		}
	}
}
