package clock

import "time"

// Sparing returns a function that gives a cached clock the readings t and wall of two
// clocks. That function returns the time since the call of Sparing. suspended returns
// the machine's total suspension.
func Sparing(suspended func() time.Duration) (since func(t time.Time, wall int64) time.Duration) {
	c := &cached{suspended: suspended}
	first := c.now()
	return func(t time.Time, wall int64) time.Duration { return c.at(t, wall).Since(first) }
}
