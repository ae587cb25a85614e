//go:build race

// Package order is for mutexes that are taken in an order. In the race build a test
// can see whether they are.
package order

import (
	"reflect"
	"sync"
	"sync/atomic"
)

// Mutex is a sync.Mutex with a rank, the length of the array type R.
type Mutex[R any] struct{ mu sync.Mutex }

// Seen is called before each Lock and after each Unlock, while it is not nil.
var Seen atomic.Pointer[func(rank int, locks bool)]

// Lock is that of sync.Mutex.
func (m *Mutex[R]) Lock() {
	m.tell(true)
	m.mu.Lock()
}

// Unlock is that of sync.Mutex.
func (m *Mutex[R]) Unlock() {
	m.mu.Unlock()
	m.tell(false)
}

func (m *Mutex[R]) tell(locks bool) {
	if seen := Seen.Load(); seen != nil {
		(*seen)(reflect.TypeFor[R]().Len(), locks)
	}
}
