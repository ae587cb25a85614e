//go:build unix

package main_test

import "golang.org/x/sys/unix"

// mono returns the monotonic clock in nanoseconds. All processes of a machine share this
// clock.
func mono() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}
