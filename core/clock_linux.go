package core

import (
	"time"

	"golang.org/x/sys/unix"
)

// started is when this process began.
var started = time.Now()

// suspendClock reads the monotonic clock, and for how long this machine has
// been suspended, counted from an arbitrary point: CLOCK_BOOTTIME counts
// suspension, the monotonic clock does not. The clock read last is the one
// subtracted, so a pause between the readings makes the result smaller, never
// larger.
var suspendClock = func() moment {
	var boot unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot)
	m := moment{at: time.Now()}
	if err == nil {
		m.asleep = time.Duration(boot.Nano()) - m.at.Sub(started)
	}
	return m
}
