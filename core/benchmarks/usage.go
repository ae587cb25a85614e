package main

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// usage is what this process has used until some moment, or between two.
type usage struct {
	CPU     float64 // seconds
	Mallocs float64
}

func usedSoFar() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{CPU: cpuSoFar(), Mallocs: float64(m.Mallocs)}
}

// cpuSoFar is this process's time on the processors, in seconds.
func cpuSoFar() float64 {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

func (u usage) since(before usage) usage {
	return usage{CPU: u.CPU - before.CPU, Mallocs: u.Mallocs - before.Mallocs}
}

// clock is a clock that all processes of the machine share and nobody sets.
func clock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
