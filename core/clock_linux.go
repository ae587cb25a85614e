package core

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns how long this machine has been suspended since it booted:
// CLOCK_BOOTTIME counts suspension, CLOCK_MONOTONIC does not. The clock read
// last is the one subtracted, so a pause between the readings makes the result
// smaller, never larger.
func suspended() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - mono.Nano())
}

var suspendClock = (&clock{suspended: suspended}).now
