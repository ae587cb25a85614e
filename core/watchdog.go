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
)

// batch is how many holds travel in one Extend.
const batch = 512

// few is how many calls extend what is due together, as long as that is fast.
const few = 8

// watchdog extends the holds of a Locker. It is one timer over a heap; what is
// due together is extended together, in calls that run beside each other so
// that a hanging one holds up no other for long. It ends nothing: each hold has a
// timer of its own for that, from when it is due for the first time.
type watchdog struct {
	locker *Locker

	mu     order.Mutex[watchdogRank]
	queue  due.Queue[hold]
	epoch  time.Time // what its times count from
	timer  *time.Timer
	at     time.Time    // when timer fires, zero if not at all
	flying count        // goroutines with holds that are not in the queue
	looked clock.Moment // when the clocks were last asked about suspension

	ctx    context.Context // of all calls
	cancel context.CancelFunc
}

// schedule has h looked after at the given time. The caller holds its mutex.
func (w *watchdog) schedule(h *hold, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.early = h.slack()
	w.queue.Remove(h.entry)
	h.entry = w.queue.Add(at.Sub(w.epoch), h)
	w.set()
}

// remove forgets h. The timer stays, also if it was for the last hold: to fire
// once for nothing costs less than to be set with every lease.
func (w *watchdog) remove(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue.Remove(h.entry)
	h.entry = nil
}

// set makes the timer fire at the first hold's due time. Where suspension can
// be seen, it fires at least every second to look.
func (w *watchdog) set() {
	var at time.Time
	if first, h := w.queue.First(); h != nil {
		at = w.epoch.Add(first)
		if !w.at.IsZero() && !at.Before(w.at) {
			return // the next look at the clocks is not sooner either
		}
	}
	if w.locker.clock != nil && w.queue.Len()+w.flying.n > 0 {
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
	var holds []*hold
	var least time.Duration // slack of the shortest of them
	w.mu.Lock()
	now := time.Since(w.epoch)
	for {
		at, h := w.queue.First()
		if h == nil || at > now+h.early { // what is due a little later travels along
			break
		}
		w.queue.Pop()
		h.entry = nil
		if len(holds) == 0 || h.early < least {
			least = h.early
		}
		holds = append(holds, h)
	}
	w.at = time.Time{}
	if len(holds) > 0 {
		w.flying.add(1) // this one, until the calls are sent
		defer w.land()
	}
	w.set()
	w.mu.Unlock()

	for _, h := range holds {
		h.guard()
	}
	w.afterSuspension()
	// Neighbours in a batch should be of one length, since the shortest bounds it.
	slices.SortStableFunc(holds, func(a, b *hold) int { return cmp.Compare(a.ttl, b.ttl) })
	w.extendAll(slices.Collect(slices.Chunk(holds, batch)), least/2)
}

// extendAll begins to extend the batches, with a few calls side by side. While
// some have not been begun their number doubles with every pace: a store that
// answers soon is asked by no more goroutines than it takes, and however many
// calls hang, what they hold up has soon been begun.
func (w *watchdog) extendAll(batches [][]*hold, pace time.Duration) {
	next := func() (b []*hold) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(batches) > 0 {
			b, batches = batches[0], batches[1:]
		}
		return b
	}
	work := func() {
		defer w.land()
		for b := next(); b != nil; b = next() {
			w.extend(b)
		}
	}
	var raise func(from, to int)
	raise = func(from, to int) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for range min(to-from, len(batches)) {
			w.flying.add(1)
			go work()
		}
		if to-from < len(batches) {
			time.AfterFunc(pace, func() { raise(to, 2*to) })
		}
	}
	raise(0, few)
}

// extend extends a batch in one call, bounded by the hold that has least left.
func (w *watchdog) extend(holds []*hold) {
	now := w.locker.now()
	holds = slices.DeleteFunc(holds, func(h *hold) bool { return !w.renews(h, now) })
	if len(holds) == 0 {
		return
	}
	limit := budget(holds[0].ttl)
	for _, h := range holds {
		limit = min(limit, h.remaining(now))
	}
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	w.locker.extend(ctx, 0, holds, w.answered)
}

// renews tells whether h is to be extended. If its lease is not extended any more it
// still counts until its time is over, so h stays in the queue, for the look at the
// clocks to go on.
func (w *watchdog) renews(h *hold, now clock.Moment) bool {
	if !h.trusted(now) {
		h.lose()
		return false
	}
	lease := h.holder()
	if lease == nil {
		return true // the next one is about to have it
	}
	if !lease.trustedAt(now) {
		return lease.isReleased() // it is about to be passed on or released
	}
	if !lease.overruns() {
		return true
	}
	h.due(func() time.Time { return time.Now().Add(h.rest(now) + h.valid/10) })
	return false
}

// answered has h extended again after the answer to an extension that began at start.
func (w *watchdog) answered(h *hold, start clock.Moment, x Extension) {
	lease := h.holder()
	tell := func(k Kind, err error) {
		if lease != nil {
			e := lease.event(k)
			e.Err = err
			lease.tell(e)
		}
	}
	switch {
	case errors.Is(x.Err, ErrLost):
		h.lose()
	case x.Err != nil:
		tell(ExtendFailed, x.Err)
		h.due(h.soon)
	case h.stands():
		h.due(func() time.Time {
			// A hold that Lease.Extend made longer is due by that, but never in
			// the past.
			if at := h.third(); at.After(time.Now()) {
				return at
			}
			return start.Time().Add(x.Valid / 3)
		})
		tell(Extended, nil)
	}
}

// land counts a goroutine out.
func (w *watchdog) land() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.flying.add(-1)
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
	landed := w.flying.zero()
	w.mu.Unlock()
	return done(ctx, landed)
}

// afterSuspension has every lease ask the clocks, and set its timers anew, if the
// machine was suspended since the last look: the timers stood still.
func (w *watchdog) afterSuspension() {
	if w.locker.clock == nil {
		return
	}
	now := w.locker.now()
	w.mu.Lock()
	slept := now.Slept(w.looked)
	w.looked = now
	w.mu.Unlock()
	if slept {
		for _, lease := range w.locker.held() {
			for _, h := range lease.holds {
				h.check()
			}
		}
	}
}
