//go:build race

package core_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockkit/lockkit/core/internal/order"
)

// mutexes records the ranks of the mutexes that each goroutine holds, and reports
// mutexes that are taken out of order. Its own mutex orders the goroutines, which hides
// races from the race detector. So no other test may run at the same time.
type mutexes struct {
	report func(text string)

	mu   sync.Mutex
	held map[string][]int
}

var watched *mutexes // nil, except for tests that run alone

func watchMutexes(report func(text string)) (stop func()) {
	watched = &mutexes{report: report, held: make(map[string][]int)}
	seen := watched.seen
	order.Seen.Store(&seen)
	return func() {
		order.Seen.Store(nil)
		watched = nil
	}
}

func (m *mutexes) seen(rank int, locks bool) {
	id := goroutine()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !locks {
		m.held[id] = slices.DeleteFunc(m.held[id], func(r int) bool { return r == rank })
		return
	}
	if held := m.held[id]; len(held) > 0 && slices.Max(held) >= rank {
		m.report(fmt.Sprintf("a mutex of rank %d is taken under %v\n%s", rank, held, debug.Stack()))
	}
	m.held[id] = append(m.held[id], rank)
}

// goroutine returns the beginning of the calling goroutine's stack, which has the
// goroutine's number.
func goroutine() string {
	var b [32]byte
	return string(b[:runtime.Stack(b[:], false)])
}

// noMutex panics if the calling goroutine holds a mutex of the engine. It does nothing
// unless mutexes are watched.
func noMutex() {
	if watched == nil {
		return
	}
	watched.mu.Lock()
	defer watched.mu.Unlock()
	if held := watched.held[goroutine()]; len(held) > 0 {
		panic(fmt.Sprintf("called under mutexes of ranks %v", held))
	}
}

// TestMutexes_InOrder runs some tests of the engine, and checks that they take its
// mutexes in order.
func TestMutexes_InOrder(t *testing.T) {
	t.Cleanup(watchMutexes(func(text string) { t.Error(text) }))
	for name, test := range map[string]func(t *testing.T){
		"passing on": TestPassingOnUnderFaults, "close a Locker": TestClose,
		"extend leases": TestExtend, "lost leases": TestLoss_Final, "the watchdog": TestMaxHold, "record runs": TestRun,
	} {
		t.Run(name, test)
	}
}

type (
	one struct{}
	two struct{}
)

func (one) Rank() int { return 1 }
func (two) Rank() int { return 2 }

func TestMutexes_OutOfOrder(t *testing.T) {
	var texts []string
	defer watchMutexes(func(text string) { texts = append(texts, text) })()
	var a, b order.Mutex[one]
	var c order.Mutex[two]
	var nest func(m ...sync.Locker) // takes the mutexes in order, and holds each until the end
	nest = func(m ...sync.Locker) {
		if len(m) > 0 {
			m[0].Lock()
			defer m[0].Unlock()
			nest(m[1:]...)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"in order", func() { nest(&a, &c); nest(&c); nest(&a) }, 0},
		{"by two goroutines", func() {
			c.Lock()
			defer c.Unlock()
			var wg sync.WaitGroup
			wg.Go(func() { nest(&a) })
			wg.Wait()
		}, 0},
		{"out of order", func() { nest(&c, &a) }, 1},
		{"two of one rank", func() { nest(&a, &b) }, 1},
	} {
		texts = nil
		if step.do(); len(texts) != step.want {
			t.Errorf("%s: %d reports, want %d: %s", step.name, len(texts), step.want, strings.Join(texts, "\n"))
		}
	}
	c.Lock()
	if !recovered(noMutex) {
		t.Error("a call under a mutex is not noticed")
	}
	c.Unlock()
	noMutex()
}
