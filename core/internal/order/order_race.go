//go:build race

// Package order provides mutexes that are locked in a fixed order. In the race build a
// test can check the order.
package order

import (
	"sync"
	"sync/atomic"
)

// Rank is implemented by types that identify a position in the order.
type Rank interface{ Rank() int }

// Mutex is a sync.Mutex with the rank of R. It must be locked before mutexes of a
// greater rank.
type Mutex[R Rank] struct{ mu sync.Mutex }

// Seen is called before each Lock and after each Unlock, unless it is nil.
var Seen atomic.Pointer[func(rank int, locks bool)]

// Lock locks m like a sync.Mutex.
func (m *Mutex[R]) Lock() {
	m.notify(true)
	m.mu.Lock()
}

// Unlock unlocks m like a sync.Mutex.
func (m *Mutex[R]) Unlock() {
	m.mu.Unlock()
	m.notify(false)
}

func (m *Mutex[R]) notify(locks bool) {
	if seen := Seen.Load(); seen != nil {
		var r R
		(*seen)(r.Rank(), locks)
	}
}
