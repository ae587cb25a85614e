package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns the total suspension of this machine since it booted.
// CLOCK_BOOTTIME counts suspension, CLOCK_MONOTONIC does not. A pause between the
// readings of these clocks makes the result too small, and the caller would store that
// result. So suspended repeats the readings if they took too long.
func suspended() time.Duration {
	var d time.Duration
	for range 10 {
		before, boot, after := read(unix.CLOCK_MONOTONIC), read(unix.CLOCK_BOOTTIME), read(unix.CLOCK_MONOTONIC)
		d = boot - after
		if after-before < noise/10 {
			break
		}
	}
	return d
}

func read(clock int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(clock, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// System is the clock of this machine.
var System Clock = (&cached{suspended: suspended}).now
