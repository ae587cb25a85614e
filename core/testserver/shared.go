package testserver

import (
	"sync"
	"testing"
)

// Shared is a server that all tests of a package share. Each test must use different
// names on the server, and disturb it only through a proxy. The server runs while at
// least one test uses it. The zero value is not usable: create a Shared with NewShared,
// in a variable of the package.
type Shared[S any] struct {
	start func(testing.TB) S

	mu     sync.Mutex
	users  int
	server S
	keeper *keeper
}

// NewShared returns a Shared. When the first test calls Get, the function start starts
// the server. When the last test that uses the server has finished, the server stops and
// the Cleanup functions of start run. A later Get starts another server.
func NewShared[S any](start func(testing.TB) S) *Shared[S] { return &Shared[S]{start: start} }

// Get returns the server, and starts it if no other test uses it.
func (s *Shared[S]) Get(t testing.TB) S {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users == 0 {
		s.keeper = &keeper{TB: t}
		started := false
		defer func() { // start may skip or fail the test
			if !started {
				s.keeper.end()
			}
		}()
		s.server = s.start(s.keeper)
		started = true
	}
	s.users++
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keeper.last(t)
		if s.users--; s.users == 0 {
			s.keeper.end()
		}
	})
	return s.server
}

// keeper is the testing.TB of a server that several tests share. Shared runs its
// cleanups when the last test has finished. A finished test must not be used any more,
// so keeper uses the test that is finishing.
type keeper struct {
	testing.TB // the test that started the server
	mu         sync.Mutex
	cleanups   []func()
	ending     testing.TB // the test that is finishing
	failed     bool       // a finished test has failed
}

func (k *keeper) last(t testing.TB) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ending, k.failed = t, k.failed || t.Failed()
}

func (k *keeper) now() (t testing.TB, failed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ending != nil {
		return k.ending, k.failed
	}
	return k.TB, false
}

// Failed reports whether any test that used the server has failed.
func (k *keeper) Failed() bool {
	t, failed := k.now()
	return failed || t.Failed()
}

// Logf logs in the test that is finishing.
func (k *keeper) Logf(format string, args ...any) {
	t, _ := k.now()
	t.Helper()
	t.Logf(format, args...)
}

// Errorf fails the test that is finishing.
func (k *keeper) Errorf(format string, args ...any) {
	t, _ := k.now()
	t.Helper()
	t.Errorf(format, args...)
}

func (k *keeper) Cleanup(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cleanups = append(k.cleanups, f)
}

func (k *keeper) end() {
	k.mu.Lock()
	all := k.cleanups
	k.cleanups = nil
	k.mu.Unlock()
	for i := len(all) - 1; i >= 0; i-- {
		all[i]()
	}
}

var sharedZooKeeper = NewShared(StartZooKeeper)

// SharedZooKeeper returns the address of a server that all tests of the package share;
// see Shared. A ZooKeeper takes a second or two to start.
func SharedZooKeeper(t testing.TB) string {
	t.Helper()
	return sharedZooKeeper.Get(t).Addr
}
