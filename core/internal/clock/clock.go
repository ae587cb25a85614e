// Package clock measures time, including time for which the machine is suspended.
package clock

import (
	"sync/atomic"
	"time"
)

// Moment is a point on the monotonic clock, with the total suspension of the machine
// until that point. The monotonic clock stops while the machine is suspended, but the
// clocks of other machines continue. So the time since a moment includes suspension.
type Moment struct {
	at     time.Duration // the time since started
	asleep time.Duration
}

// Clock returns the present moment.
type Clock func() Moment

// Asking returns a Clock that calls suspended each time for the machine's total
// suspension.
func Asking(suspended func() time.Duration) Clock {
	return func() Moment { return Moment{time.Since(started), suspended()} }
}

// started is a point on the monotonic clock.
var started = time.Now()

// noise is the maximum difference between readings of two clocks without a suspension.
const noise = 10 * time.Millisecond

// Since returns the time from start to m.
func (m Moment) Since(start Moment) time.Duration {
	d := m.at - start.at
	if asleep := m.asleep - start.asleep; asleep > noise {
		d += asleep
	}
	return d
}

// Slept reports whether the machine was suspended between start and m.
func (m Moment) Slept(start Moment) bool { return m.asleep-start.asleep > noise }

// Time returns m as a time of the standard library. Do not rely on its wall clock.
func (m Moment) Time() time.Time { return started.Add(m.at) }

// cached returns moments without reading the machine's total suspension each time,
// because that reading takes system calls. It reads the total only if the wall clock
// has moved against the monotonic clock since the last reading. When the machine
// resumes, the kernel adds the time of the suspension to the wall clock and to
// CLOCK_BOOTTIME. Other changes of the wall clock only cause an unnecessary reading.
// cached is safe for concurrent use.
type cached struct {
	suspended func() time.Duration
	last      atomic.Pointer[reading]
}

// reading is a reading of the total suspension, and the lead of the wall clock at that
// time.
type reading struct {
	ahead     time.Duration
	suspended time.Duration
}

func (c *cached) now() Moment {
	t := time.Now()
	return c.at(t, t.UnixNano())
}

// at returns the moment at which the monotonic clock shows t and the wall clock shows
// wall.
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
