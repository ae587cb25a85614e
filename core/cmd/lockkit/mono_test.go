//go:build unix

package main_test

import "golang.org/x/sys/unix"

// mono is the monotonic clock in nanoseconds. It is one clock for all processes of a
// machine.
func mono() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}
