package core

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// WithAsleep replaces the function that returns the total time for which the machine
// was suspended. nil means a machine that is never suspended.
func WithAsleep(asleep func() time.Duration) Option {
	return func(c *config) {
		if asleep == nil {
			asleep = func() time.Duration { return 0 }
		}
		c.clock = clock.Asking(asleep)
	}
}

// SetAsleep has the effect of WithAsleep on an existing Locker. The Locker must not
// have a card, and must not have been used.
func (l *Locker) SetAsleep(asleep func() time.Duration) {
	WithAsleep(asleep)(&l.config)
	l.storeCalls.clock, l.waiters.now = l.config.clock, l.config.clock
}

// Left returns a description of the remaining work of the Locker, or "" if there is
// none.
func (l *Locker) Left() string {
	r := &l.roster
	r.mu.Lock()
	active, closed := r.active.n, r.closing.Err() != nil
	names, listed, leases := len(r.tallies), 0, 0
	for _, t := range r.tallies {
		leases += t[holding].Len() + t[unreleased].Len()
		if !t.empty() {
			listed++
		}
	}
	r.mu.Unlock()
	l.waiters.mu.Lock()
	queues := len(l.waiters.of)
	l.waiters.mu.Unlock()
	l.watchdog.mu.Lock()
	// The timer of an open Locker may fire once more.
	queued, armed := l.watchdog.queue.Len(), closed && l.watchdog.at > 0
	l.watchdog.mu.Unlock()
	l.cleanup.mu.Lock()
	cleanups, waiting := l.cleanup.pending.n, len(l.cleanup.waiting)
	l.cleanup.mu.Unlock()
	if active+leases+listed+queues+queued+cleanups+waiting == 0 && names <= spareTallies && !armed {
		return ""
	}
	return fmt.Sprintf("%d acquires or leases, %d leases and %d of %d names listed, %d queues, %d holds to extend (timer armed: %t), %d clean-ups, %d of them waiting",
		active, leases, listed, names, queues, queued, armed, cleanups, waiting)
}

// Trust returns the part of a validity during which a holder relies on its hold.
func Trust(valid time.Duration) time.Duration { return trust(valid) }
