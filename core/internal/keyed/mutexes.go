// Package keyed provides a mutex for each key of one process. Waiting callers can
// leave.
package keyed

import (
	"context"
	"sync"
)

// Mutexes is a mutex for each key. The zero value is ready to use, and unused keys take
// no memory. It is safe for concurrent use.
type Mutexes[K comparable] struct {
	mu sync.Mutex
	of map[K]*mutex
}

// mutex is the mutex of a key that is locked or waited for.
type mutex struct {
	users int           // the number of callers that hold it or wait for it
	free  chan struct{} // contains one element while the mutex is held
}

// Lock locks the key. If ctx is done first, Lock fails with ctx's cause.
func (m *Mutexes[K]) Lock(ctx context.Context, key K) error {
	if m.TryLock(key) {
		return nil // even if ctx is done
	}
	select {
	case m.enter(key).free <- struct{}{}:
		return nil
	case <-ctx.Done():
		m.leave(key)
		return context.Cause(ctx)
	}
}

// TryLock locks the key if it is free, and reports whether it did.
func (m *Mutexes[K]) TryLock(key K) bool {
	select {
	case m.enter(key).free <- struct{}{}:
		return true
	default:
		m.leave(key)
		return false
	}
}

// Unlock unlocks the key, so that one of the waiting callers can lock it. The caller
// must hold the key.
func (m *Mutexes[K]) Unlock(key K) {
	<-m.leave(key).free
}

func (m *Mutexes[K]) enter(key K) *mutex {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.of[key]
	if x == nil {
		x = &mutex{free: make(chan struct{}, 1)}
		if m.of == nil {
			m.of = make(map[K]*mutex)
		}
		m.of[key] = x
	}
	x.users++
	return x
}

func (m *Mutexes[K]) leave(key K) *mutex {
	m.mu.Lock()
	defer m.mu.Unlock()
	x := m.of[key]
	if x.users--; x.users == 0 {
		delete(m.of, key)
	}
	return x
}
