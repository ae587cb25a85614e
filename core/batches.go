package core

import (
	"context"
	"errors"
	"slices"
	"time"
)

// batch is how many holds travel in one Extend.
const batch = 512

// few is how many calls extend what is due together, as long as that is fast.
const few = 8

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
			w.flying++
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
	start := w.locker.now()
	holds = slices.DeleteFunc(holds, func(h *hold) bool { return !h.lease.vouchAt(start) || w.expires(h) })
	if len(holds) == 0 {
		return
	}
	limit := budget(holds[0].claim.TTL)
	claims := make([]Claim, len(holds))
	for i, h := range holds {
		claims[i] = h.claim
		limit = min(limit, h.left(start))
	}
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	answers := w.locker.store.Extend(ctx, claims)
	for i, h := range holds {
		w.answered(h, start, answerTo(i, answers))
	}
}

// expires tells that h is not to be extended any more. Its lease still counts until
// its time is over, so it stays in the queue, for the look at the clocks to go on.
func (w *watchdog) expires(h *hold) bool {
	if !h.lease.overruns() {
		return false
	}
	left := h.left(w.locker.now())
	w.again(h, func(h *hold) time.Time { return time.Now().Add(left + h.valid/10) })
	return true
}

// answerTo is the answer to claim i. One that is missing confirms nothing.
func answerTo(i int, answers []Extension) Extension {
	if i < len(answers) {
		return answers[i]
	}
	return Extension{Err: errors.New("the store gave no answer")}
}

// left is how long this process relies on h from now on.
func (h *hold) left(now moment) time.Duration {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return trust(h.valid) - now.since(h.from)
}

func (w *watchdog) answered(h *hold, start moment, x Extension) {
	l := h.lease
	switch {
	case errors.Is(x.Err, ErrLost):
		l.lose()
	case x.Err != nil:
		w.locker.observe(context.WithoutCancel(l.under), Event{Kind: ExtendFailed, Name: l.name, Err: x.Err})
		w.again(h, (*hold).soon)
	default:
		if x.Valid == 0 {
			x.Valid = h.claim.TTL
		}
		if l.confirm(h, start, x.Valid) {
			w.again(h, func(h *hold) time.Time {
				// What Extend made longer than this is due by that, but never
				// in the past.
				if at := h.third(h.from); at.After(time.Now()) {
					return at
				}
				return start.time().Add(x.Valid / 3)
			})
			if !w.locker.unobserved() {
				w.locker.observe(context.WithoutCancel(l.under), Event{Kind: Extended, Name: l.name})
			}
		}
	}
}

// again schedules h, unless its lease has ended meanwhile.
func (w *watchdog) again(h *hold, at func(*hold) time.Time) {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.lease.state == held {
		w.schedule(h, at(h))
	}
}
