package core

import (
	"sync/atomic"
	"time"
)

// moment is a point on the monotonic clock, and how long the machine had been
// suspended by then. The monotonic clock stops while the machine is suspended,
// but leases at the store do not: time since a moment counts both.
type moment struct {
	at     time.Duration // since started
	asleep time.Duration
}

// clock tells moments. To ask how long the machine was suspended takes system
// calls, so it asks only when the wall clock has moved against the monotonic
// one since it last asked: on resuming, the kernel adds the same to the wall
// clock as to CLOCK_BOOTTIME. What else moves the wall clock makes it ask for
// nothing.
type clock struct {
	suspended func() time.Duration
	asked     atomic.Pointer[asked]
}

// asked is an answer, and how far the wall clock was ahead then.
type asked struct {
	ahead     time.Duration
	suspended time.Duration
}

// started is a point on the monotonic clock.
var started = time.Now()

func (c *clock) now() moment {
	t := time.Now()
	return c.at(t, t.UnixNano())
}

// at is the moment at which the monotonic clock shows t, and the wall clock wall.
func (c *clock) at(t time.Time, wall int64) moment {
	mono := t.Sub(started)
	ahead := time.Duration(wall) - mono
	last := c.asked.Load()
	if last == nil || (ahead-last.ahead).Abs() > blink/2 {
		last = &asked{ahead: ahead, suspended: c.suspended()}
		c.asked.Store(last)
	}
	return moment{mono, last.suspended}
}

func (l *Locker) now() moment {
	if l.clock == nil {
		return moment{at: time.Since(started)}
	}
	return l.clock()
}

// since is how much older than start m is. Less than a blink of suspension is
// the noise between two readings of two clocks, and not counted.
func (m moment) since(start moment) time.Duration {
	d := m.at - start.at
	if asleep := m.asleep - start.asleep; asleep > blink {
		d += asleep
	}
	return d
}

// time is m as the standard library counts. Its wall clock is not to be relied on.
func (m moment) time() time.Time { return started.Add(m.at) }

const blink = 10 * time.Millisecond
