package clock_test

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
)

// TestSparing checks when a cached clock reads the machine's suspension, for
// hazard 4.
func TestSparing(t *testing.T) {
	t.Parallel()
	asked, asleep := 0, time.Duration(0)
	since := clock.Sparing(func() time.Duration { asked++; return asleep })
	start := time.Now()
	later := func(mono, wall time.Duration) time.Duration {
		d := since(start.Add(mono), start.UnixNano()+int64(wall))
		return d.Round(time.Second) // a busy machine may pause after start
	}
	for _, step := range []struct {
		name                     string
		mono, wall, asleep, want time.Duration
		asks                     int
	}{
		{"time passes", time.Second, time.Second, 0, time.Second, 0},
		{"the wall clock is slewed", 20 * time.Second, 20*time.Second + 4*time.Millisecond, 0, 20 * time.Second, 0},
		{"the machine was suspended", 21 * time.Second, time.Hour, time.Hour - 21*time.Second, time.Hour, 1},
		{"more time passes", 22 * time.Second, time.Hour + time.Second, time.Hour - 21*time.Second, time.Hour + time.Second, 0},
		{"the wall clock is set back", 23 * time.Second, -24 * time.Hour, time.Hour - 21*time.Second, time.Hour + 2*time.Second, 1},
		{"the wall clock is set ahead", 24 * time.Second, 24 * time.Hour, time.Hour - 21*time.Second, time.Hour + 3*time.Second, 1},
		{"suspended again, clock set right", 25 * time.Second, 3*time.Hour + 25*time.Second, 2 * time.Hour, 2*time.Hour + 25*time.Second, 1},
	} {
		asked, asleep = 0, step.asleep
		if got := later(step.mono, step.wall); got != step.want || asked != step.asks {
			t.Errorf("%s: %v have passed, asked %d times, want %v and %d", step.name, got, asked, step.want, step.asks)
		}
	}
}

// TestMoment checks that time since a moment includes suspension, for hazard 4.
func TestMoment(t *testing.T) {
	t.Parallel()
	var asleep time.Duration
	suspended := clock.Asking(func() time.Duration { return asleep })
	start := suspended()
	near := func(got, want time.Duration) bool { return got >= want && got < want+time.Minute }

	asleep = 5 * time.Millisecond
	if m := suspended(); m.Slept(start) || !near(m.Since(start), 0) {
		t.Errorf("the noise between two clocks counts as suspension: %v", m.Since(start))
	}
	asleep = time.Hour
	if m := suspended(); !m.Slept(start) || !near(m.Since(start), time.Hour) {
		t.Errorf("an hour of suspension is %v", m.Since(start))
	}
	if d := time.Until(suspended().Time()); d > 0 || d < -time.Minute {
		t.Errorf("the time of the present moment is %v from now", d)
	}
	first := clock.System()
	if m := clock.System(); m.Slept(first) || !near(m.Since(first), 0) {
		t.Errorf("this machine's clock counts %v between two looks at it", m.Since(first))
	}
}
