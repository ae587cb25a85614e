package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usage is the resource usage of this process up to some time, or between two times.
type usage struct {
	CPU     float64 // seconds
	Mallocs float64
}

func usedSoFar() usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{CPU: cpuSoFar(), Mallocs: float64(m.Mallocs)}
}

// cpuSoFar returns the CPU time of this process, in seconds.
func cpuSoFar() float64 { return cpuOf(unix.RUSAGE_SELF) }

func cpuOf(who int) float64 {
	var r unix.Rusage
	if unix.Getrusage(who, &r) != nil {
		return 0
	}
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

func (u usage) since(before usage) usage {
	return usage{CPU: u.CPU - before.CPU, Mallocs: u.Mallocs - before.Mallocs}
}

// clock returns the time of a clock that all processes of the machine share and that is
// never set.
func clock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// bystanders measures the share of the machine that other programs use.
type bystanders struct{ idle, all float64 }

func watchOthers() bystanders {
	idle, all := ticks()
	return bystanders{idle, all}
}

// share returns the share that other programs have used since watchOthers, in percent,
// or -1 if the share is unknown. ours is the CPU time in seconds of this program and
// its children, including running children.
func (b bystanders) share(ours float64) float64 {
	idle, all := ticks()
	idle, all = idle-b.idle, all-b.all
	if all <= 0 {
		return -1
	}
	const hertz = 100 // ticks per second in /proc/stat
	return max(0, all-idle-ours*hertz) / all * 100
}

// ticks returns the idle time and the total time of all processors, from the first line
// of /proc/stat.
func ticks() (idle, all float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line) {
		n, _ := strconv.ParseFloat(field, 64)
		if i == 4 || i == 5 { // idle, and waiting for disks
			idle += n
		}
		if i < 9 { // the time of guests is also counted as user time
			all += n
		}
	}
	return idle, all
}
