package core

import (
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// SetAsleep replaces the clock that tells how long the machine was suspended;
// nil stands for a machine without one. Call it before the Locker is used.
func (l *Locker) SetAsleep(asleep func() time.Duration) {
	l.clock = nil
	if asleep != nil {
		l.clock = clock.Asking(asleep)
	}
}

// Left says what the Locker still has to do, or "" if that is nothing.
func (l *Locker) Left() string {
	l.mu.Lock()
	busy, leases, closed := l.busy.n, len(l.leases), l.closed
	l.mu.Unlock()
	l.waiters.mu.Lock()
	queues := len(l.waiters.of)
	l.waiters.mu.Unlock()
	l.watchdog.mu.Lock()
	// An open Locker leaves its timer to fire once more.
	queued, armed := l.watchdog.queue.Len(), closed && !l.watchdog.at.IsZero()
	l.watchdog.mu.Unlock()
	l.cleanup.mu.Lock()
	active, waiting, looping := l.cleanup.active.n, len(l.cleanup.waiting), l.cleanup.looping
	l.cleanup.mu.Unlock()
	if busy+leases+queues+queued+active+waiting == 0 && !armed && !looping {
		return ""
	}
	return fmt.Sprintf("%d acquires or leases, %d leases listed, %d queues, %d holds to extend (timer armed: %t), %d clean-ups active, %d waiting",
		busy, leases, queues, queued, armed, active, waiting)
}

// Trust is how much of a validity a holder relies on.
func Trust(valid time.Duration) time.Duration { return trust(valid) }
