package soak_test

import (
	"os"
	"runtime"
)

// The allowed increase of each number during the load.
const (
	moreGoroutines = 20
	moreFiles      = 20
	moreHeap       = 16 << 20
)

// level contains the numbers that increase if something leaks. A client keeps its
// connections, up to the size of its pool. The field connections counts these
// connections. Their goroutines and files, at the client and on both sides of the proxy,
// are subtracted from the fields goroutines and files.
type level struct{ goroutines, files, heap, connections int }

func measure(all []*service) level {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/dev/fd")
	n := 0
	for _, s := range all {
		n += s.proxy.Links()
	}
	return level{runtime.NumGoroutine() - 4*n, len(files) - 3*n, int(m.HeapAlloc), n}
}

func (l level) over(before level) bool {
	return l.goroutines > before.goroutines+moreGoroutines || l.files > before.files+moreFiles || l.heap > before.heap+moreHeap ||
		l.connections > services*(poolSize+moreConnections)
}
