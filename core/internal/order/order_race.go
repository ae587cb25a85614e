//go:build race

// Package order is for mutexes that are taken in an order. In the race build a test can
// check the order.
package order

import (
	"sync"
	"sync/atomic"
)

// Rank is a type that names a place in the order.
type Rank interface{ Rank() int }

// Mutex is a sync.Mutex with the rank of R. A mutex is taken before those of a greater
// rank.
type Mutex[R Rank] struct{ mu sync.Mutex }

// Seen is called before each Lock and after each Unlock, while it is not nil.
var Seen atomic.Pointer[func(rank int, locks bool)]

// Lock locks m as a sync.Mutex.
func (m *Mutex[R]) Lock() {
	m.notify(true)
	m.mu.Lock()
}

// Unlock unlocks m as a sync.Mutex.
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
