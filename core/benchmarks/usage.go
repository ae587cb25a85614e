package main

import (
	"os"
	"runtime"
	"strconv"
	"strings"
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

// clock is a clock that all processes of the machine share and that cannot be set.
func clock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// bystanders tells how much of the machine other programs use.
type bystanders struct{ idle, all float64 }

func watchOthers() bystanders {
	idle, all := ticks()
	return bystanders{idle, all}
}

// share is what they used since, in percent, if this program and its children,
// also those that run, used so many seconds of processors; -1 if the system does
// not say.
func (b bystanders) share(ours float64) float64 {
	idle, all := ticks()
	idle, all = idle-b.idle, all-b.all
	if all <= 0 {
		return -1
	}
	const hertz = 100 // of ticks, on all that have them
	return max(0, all-idle-ours*hertz) / all * 100
}

// ticks is how long all processors were idle, and how long they have run, as
// the first line of /proc/stat says.
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
		if i < 9 { // guests are counted as users too
			all += n
		}
	}
	return idle, all
}
