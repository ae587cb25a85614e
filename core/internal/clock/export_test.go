package clock

import "time"

// Sparing returns the Since of a cached clock, on a machine that was suspended for this
// time.
func Sparing(suspended func() time.Duration) (since func(t time.Time, wall int64) time.Duration) {
	c := &cached{suspended: suspended}
	first := c.now()
	return func(t time.Time, wall int64) time.Duration { return c.at(t, wall).Since(first) }
}
