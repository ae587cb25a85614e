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
	holds = slices.DeleteFunc(holds, func(h *hold) bool { return !w.renews(h, start) })
	if len(holds) == 0 {
		return
	}
	limit := budget(holds[0].ttl)
	claims := make([]Claim, len(holds))
	for i, h := range holds {
		claims[i] = h.claim()
		limit = min(limit, h.remaining(start))
	}
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	answers := w.locker.store.Extend(ctx, claims)
	for i, h := range holds {
		w.answered(h, start, answerTo(i, answers))
	}
}

// renews tells whether h is to be extended. If its lease is not extended any more it
// still counts until its time is over, so h stays in the queue, for the look at the
// clocks to go on.
func (w *watchdog) renews(h *hold, now moment) bool {
	if !h.trusted(now) {
		h.lose()
		return false
	}
	lease := h.holder()
	if lease == nil {
		return true // the next one is about to have it
	}
	if !lease.vouchAt(now) {
		return lease.isReleased() // it is about to be passed on or released
	}
	if !lease.overruns() {
		return true
	}
	h.due(func() time.Time { return time.Now().Add(h.rest(w.locker.now()) + h.valid/10) })
	return false
}

// answerTo is the answer to claim i. One that is missing confirms nothing.
func answerTo(i int, answers []Extension) Extension {
	if i < len(answers) {
		return answers[i]
	}
	return Extension{Err: errors.New("the store gave no answer")}
}

// lasts is for how long a claim with this TTL was extended.
func (x *Extension) lasts(ttl time.Duration) time.Duration {
	if x.Valid == 0 {
		return ttl
	}
	return x.Valid
}

// answered notes the answer to an extension of h that began at start.
func (w *watchdog) answered(h *hold, start moment, x Extension) {
	lease := h.holder()
	tell := func(e Event) {
		if lease != nil && !w.locker.unobserved() {
			e.Name = lease.name
			w.locker.observe(context.WithoutCancel(lease.under), e)
		}
	}
	switch {
	case errors.Is(x.Err, ErrLost):
		h.lose()
	case x.Err != nil:
		tell(Event{Kind: ExtendFailed, Err: x.Err})
		h.due(h.soon)
	case h.confirm(start, x.lasts(h.ttl)):
		h.due(func() time.Time {
			// A hold that Lease.Extend made longer is due by that, but never in
			// the past.
			if at := h.third(); at.After(time.Now()) {
				return at
			}
			return start.time().Add(x.lasts(h.ttl) / 3)
		})
		tell(Event{Kind: Extended})
	}
}
