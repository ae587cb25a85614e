package zktest

import (
	"sync"
	"testing"
)

var shared struct {
	mu     sync.Mutex
	users  int
	server *Server
}

// keeper stands in for the test of a server that belongs to several: it runs
// what is to be done when the last of them has ended.
type keeper struct {
	testing.TB // of the test that started the server
	cleanups   []func()
}

func (k *keeper) Cleanup(f func()) { k.cleanups = append(k.cleanups, f) }

// Shared returns the address of a server for all tests that only need one, and
// do nothing to it but through proxies of their own. It runs as long as one of
// them does.
func Shared(t testing.TB) string {
	t.Helper()
	Require(t)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.users == 0 {
		shared.server = Start(&keeper{TB: t})
	}
	shared.users++
	t.Cleanup(func() {
		shared.mu.Lock()
		defer shared.mu.Unlock()
		if shared.users--; shared.users > 0 {
			return
		}
		for _, f := range shared.server.t.(*keeper).cleanups {
			f()
		}
	})
	return shared.server.Addr
}
