package words_test

import (
	"math"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/internal/words"
)

func TestDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                       "0 s",
		1:                       "1 ns",
		1500:                    "1.5 µs",
		50 * time.Millisecond:   "50 ms",
		1500 * time.Millisecond: "1.5 s",
		30 * time.Second:        "30 s",
		time.Minute:             "1 minute",
		90 * time.Second:        "1 minute 30 s",
		10 * time.Minute:        "10 minutes",
		time.Hour:               "1 hour",
		90 * time.Minute:        "1 hour 30 minutes",
		time.Hour + 5:           "1 hour 5 ns",
		24 * time.Hour:          "24 hours",
		48 * time.Hour:          "2 days",
		49 * time.Hour:          "49 hours",
		700 * time.Hour:         "700 hours",
		24 * 24 * time.Hour:     "24 days",
		-time.Second:            "-1 s",
		-90 * time.Second:       "-1 minute 30 s",
		math.MaxInt64:           "2562047 hours 47 minutes 16.854775807 s",
		math.MinInt64:           "-2562047 hours 47 minutes 16.854775807 s",
	} {
		if got := words.Duration(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}
