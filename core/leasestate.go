package core

import (
	"context"
	"fmt"
	"time"
)

// add makes a granted hold part of the lease and has the watchdog extend it.
// Only the acquire that makes the lease calls it. An earlier hold of the lease
// may have been lost meanwhile; then start will say so.
func (l *Lease) add(h *hold, now moment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.holds) == 0 {
		l.holds = l.one[:0]
		if l.since == (moment{}) {
			l.since = h.from
		}
	}
	l.holds, l.granted = append(l.holds, h), now
	if l.state == held {
		l.locker.watchdog.schedule(h, h.third(h.from))
	}
}

// doubt remembers that an attempt on key may have been granted, or may yet be.
func (l *Lease) doubt(key string) {
	if l.unsure == nil {
		l.unsure = make(map[string]bool)
	}
	l.unsure[key] = true
}

// start makes the lease one that the caller may have. Keys that were taken
// before the last one may have been lost meanwhile.
func (l *Lease) start(ctx context.Context) error {
	if len(l.holds) > 1 && !l.vouch() {
		return fmt.Errorf("acquire %s: %w", l.name, ErrLost)
	}
	l.running = true
	if !l.locker.keep(l) {
		l.running = false
		return fmt.Errorf("acquire %s: %w", l.name, ErrClosed)
	}
	return nil
}

// guard gives a hold the timer that ends the lease, if it has none. It gets it when
// it is to be extended for the first time, and most leases are given back before.
func (h *hold) guard() {
	now := h.lease.locker.now()
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	if h.lease.state == held && h.timer == nil {
		// If its time is over, that is told by the timer: it holds up no other.
		h.timer = time.AfterFunc(trust(h.valid)-now.since(h.from), h.ring)
	}
}

// ring is what the hold's timer does: it ends the lease, or is set again if it
// was early.
func (h *hold) ring() {
	if !h.lease.vouch() {
		return
	}
	left := max(h.left(h.lease.locker.now()), time.Millisecond)
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	switch {
	case h.lease.state != held:
	case h.timer == nil:
		h.timer = time.AfterFunc(left, h.ring) // the machine was suspended
	default:
		h.timer.Reset(left)
	}
}

// alive tells whether this process may rely on the hold.
func (h *hold) alive(now moment) bool {
	return now.since(h.from) < trust(h.valid)
}

// vouch tells whether this process still relies on the lease. It asks the
// clocks, and ends the lease if its time is over.
func (l *Lease) vouch() bool { return l.vouchAt(l.locker.now()) }

func (l *Lease) vouchAt(now moment) bool {
	l.mu.Lock()
	if l.state != held {
		over := l.state == lost
		l.mu.Unlock()
		if over {
			l.end(ErrLost) // who found that out may not have come to it yet
		}
		return false
	}
	for _, h := range l.holds {
		if !h.alive(now) {
			l.mu.Unlock()
			l.lose()
			return false
		}
	}
	l.mu.Unlock()
	return true
}

// lose ends the lease for good: whatever the store may say later, it is lost.
func (l *Lease) lose() {
	if l.stop(lost) != held {
		return
	}
	l.end(ErrLost)
	l.locker.lines.vacate(l)
	l.mu.Lock()
	told := l.announced
	l.unheard = !told
	l.mu.Unlock()
	if told {
		l.tellLost()
	}
}

// announce tells the observer that the lease was acquired, and that it was lost if
// that has happened already.
func (l *Lease) announce(ctx context.Context, wait time.Duration) {
	l.locker.observe(ctx, Event{Kind: Acquired, Name: l.name, Wait: wait})
	l.mu.Lock()
	l.announced = true
	unheard := l.unheard
	l.mu.Unlock()
	if unheard {
		l.tellLost()
	}
}

func (l *Lease) tellLost() {
	l.locker.observe(context.WithoutCancel(l.under), Event{
		Kind: Lost, Name: l.name, Held: l.locker.now().since(l.since), Err: ErrLost,
	})
}

// stop changes a held lease's state, and returns the state before. It is not
// extended any more.
func (l *Lease) stop(to state) state {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.state
	if before == held {
		l.state = to
		for _, h := range l.holds {
			if h.timer != nil {
				h.timer.Stop()
			}
			l.locker.watchdog.remove(h)
		}
	}
	return before
}

// confirm notes that the store extended h by an attempt that began at start.
// What is known already is never shortened. It reports whether the lease is
// still held: an answer that comes after the trust ended revives nothing.
func (l *Lease) confirm(h *hold, start moment, valid time.Duration) bool {
	now := l.locker.now()
	if !l.vouchAt(now) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != held {
		return false
	}
	if left := trust(valid) - now.since(start); left > trust(h.valid)-now.since(h.from) {
		h.from, h.valid = start, valid
		if h.timer != nil {
			h.timer.Reset(left)
		}
	}
	return true
}

func (l *Lease) isReleased() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == gone || l.releasing
}

// stands tells that the lease was neither lost nor released so far.
func (l *Lease) stands() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == held
}
