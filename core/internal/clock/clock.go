// Package clock measures time that goes on while the machine is suspended.
package clock

import (
	"sync/atomic"
	"time"
)

// Moment is a point on the monotonic clock, and how long the machine had been
// suspended by then. The monotonic clock stops while the machine is suspended,
// but the clocks of other machines do not: time since a moment counts both.
type Moment struct {
	at     time.Duration // since started
	asleep time.Duration
}

// Clock tells the present moment.
type Clock func() Moment

// Asking is a Clock that asks each time how long the machine has been suspended.
func Asking(suspended func() time.Duration) Clock {
	return func() Moment { return Moment{time.Since(started), suspended()} }
}

// started is a point on the monotonic clock.
var started = time.Now()

// noise is the most by which readings of two clocks differ without a suspension.
const noise = 10 * time.Millisecond

// Since is how much older than start m is.
func (m Moment) Since(start Moment) time.Duration {
	d := m.at - start.at
	if asleep := m.asleep - start.asleep; asleep > noise {
		d += asleep
	}
	return d
}

// Slept tells whether the machine was suspended between start and m.
func (m Moment) Slept(start Moment) bool { return m.asleep-start.asleep > noise }

// Time is m as the standard library counts. Its wall clock is not to be relied on.
func (m Moment) Time() time.Time { return started.Add(m.at) }

// cached tells moments. To ask how long the machine was suspended takes system
// calls, so it asks only when the wall clock has moved against the monotonic
// one since it last asked: on resuming, the kernel adds the same to the wall
// clock as to CLOCK_BOOTTIME. What else moves the wall clock makes it ask for
// nothing. It is safe for concurrent use.
type cached struct {
	suspended func() time.Duration
	last      atomic.Pointer[reading]
}

// reading is an answer, and how far the wall clock was ahead then.
type reading struct {
	ahead     time.Duration
	suspended time.Duration
}

func (c *cached) now() Moment {
	t := time.Now()
	return c.at(t, t.UnixNano())
}

// at is the moment at which the monotonic clock shows t, and the wall clock wall.
func (c *cached) at(t time.Time, wall int64) Moment {
	mono := t.Sub(started)
	ahead := time.Duration(wall) - mono
	last := c.last.Load()
	if last == nil || (ahead-last.ahead).Abs() > noise/2 {
		last = &reading{ahead: ahead, suspended: c.suspended()}
		c.last.Store(last)
	}
	return Moment{mono, last.suspended}
}
