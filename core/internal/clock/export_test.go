package clock

import "time"

// Sparing is a clock on a machine that reports how long it was suspended.
func Sparing(suspended func() time.Duration) (since func(t time.Time, wall int64) time.Duration) {
	c := &cached{suspended: suspended}
	first := c.now()
	return func(t time.Time, wall int64) time.Duration { return c.at(t, wall).Since(first) }
}
