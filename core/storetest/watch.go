package storetest

import (
	"context"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// patience limits the time for which the suite waits for an event that should come at
// once.
const patience = 20 * time.Second

var watchCases = []testCase{
	{"release wakes another process", []Feature{Watching}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		woken := e.watch(e.other, w)
		e.release(e.store, c)
		e.wakes(woken)
		e.acquire(e.other, w)
	}},
	{"release wakes the same process", []Feature{Watching}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.store, w)
		woken := e.watch(e.store, w)
		e.release(e.store, c)
		e.wakes(woken)
		e.acquire(e.store, w)
	}},
	{"watch is live when returned", []Feature{Watching}, func(e *env) {
		for range 20 {
			c, w := e.exclusive(), e.waiting()
			e.acquire(e.store, c)
			e.busy(e.other, w)
			ctx, cancel := context.WithCancel(e.Context())
			woken := e.watchUntil(ctx, e.other, w)
			e.release(e.store, c)
			e.wakes(woken)
			cancel()
			e.giveUp(e.other, w)
		}
	}},
	{"watch opened before the claim", []Feature{Watching}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		woken := e.watch(e.other, w)
		e.busy(e.other, w)
		e.release(e.store, c)
		e.wakes(woken)
	}},
	{"watch wakes again and again", []Feature{Watching, Overtaking}, func(e *env) {
		w := e.waiting()
		woken := e.watch(e.other, w)
		for range 3 {
			// The store may reserve the key for the woken waiter for a while.
			c := e.exclusive()
			e.becomesFree(e.store, c)
			e.busy(e.other, w)
			e.release(e.store, c)
			e.wakes(woken)
		}
		e.acquire(e.other, w)
	}},
	{"release wakes few waiters", []Feature{Watching, Places}, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		var line []<-chan struct{}
		for range 10 {
			w := e.waiting()
			e.busy(e.other, w)
			line = append(line, e.watch(e.other, w))
		}
		e.release(e.store, c)
		woke := make(map[int]bool)
		look := func() int {
			for i, woken := range line {
				select {
				case <-woken:
					woke[i] = true
				default:
				}
			}
			return len(woke)
		}
		// The first wake-up may come late, with further wake-ups right after it.
		for stop := time.Now().Add(patience); look() == 0 && time.Now().Before(stop); {
			time.Sleep(patience / 1000)
		}
		e.sleep(e.units(2))
		if n := look(); n < 1 || n > len(line)/2 {
			e.Errorf("%d of %d waiters were woken by one release", n, len(line))
		}
	}},
	{"watch stops with its context", []Feature{Watching}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		ctx, cancel := context.WithCancel(e.Context())
		woken := e.watchUntil(ctx, e.other, w)
		cancel()
		e.sleep(e.units(2))
		e.release(e.store, c)
		e.sleep(e.units(2))
		select {
		case _, open := <-woken:
			if open {
				e.Error("woken after the context of the watch was done")
			}
		default:
		}
	}},
	{"one watch of two stops", []Feature{Watching}, func(e *env) {
		c, w := e.exclusive(), e.waiting()
		e.acquire(e.store, c)
		e.busy(e.other, w)
		ctx, cancel := context.WithCancel(e.Context())
		e.watchUntil(ctx, e.other, w)
		woken := e.watch(e.other, w)
		cancel()
		e.sleep(e.units(1))
		e.release(e.store, c)
		e.wakes(woken)
	}},
	{"watches leave nothing running", []Feature{Watching}, func(e *env) {
		// This starts the goroutines that the store starts once for all watches.
		e.watch(e.other, e.waiting())
		const n = 100
		ctx, cancel := context.WithCancel(e.Context())
		pprof.Do(ctx, pprof.Labels(goroutineLabel, e.key), func(ctx context.Context) {
			for range n {
				w := e.waiting()
				w.Key += w.Lease
				e.watchUntil(ctx, e.other, w)
			}
		})
		cancel()
		for stop := time.Now().Add(patience); ; time.Sleep(patience / 100) {
			left := goroutines(e.key)
			if left < n/10 { // these few may be goroutines of a connection
				return
			}
			if time.Now().After(stop) {
				e.Fatalf("%d watches left %d goroutines", n, left)
			}
		}
	}},
}

const goroutineLabel = "storetest"

// goroutines returns the number of goroutines that have inherited the label value.
func goroutines(value string) (n int) {
	var profile strings.Builder
	// A write to memory does not fail.
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	count := 0
	for line := range strings.Lines(profile.String()) {
		// Each group of equal goroutines has a line "3 @ 0x…", and a line with its
		// labels.
		if number, _, ok := strings.Cut(line, " @ "); ok {
			count, _ = strconv.Atoi(number)
		} else if strings.HasPrefix(line, "# labels:") && strings.Contains(line, strconv.Quote(value)) {
			n += count
		}
	}
	return n
}

// watch opens a watch that stays open until the end of the case.
func (e *env) watch(s store.Store, c store.Claim) <-chan struct{} {
	e.Helper()
	return e.watchUntil(e.Context(), s, c)
}

func (e *env) watchUntil(ctx context.Context, s store.Store, c store.Claim) <-chan struct{} {
	e.Helper()
	woken, err := watcher(e, s).Watch(ctx, c)
	if err != nil {
		e.Fatalf("watch: got %v, want a channel", err)
	}
	return woken
}

func watcher(t testing.TB, s store.Store) store.Watcher {
	t.Helper()
	w, ok := s.(store.Watcher)
	if !ok {
		t.Fatalf("%T is no store.Watcher", s)
	}
	return w
}

// wakes waits for a wake-up, and fails the case if none comes within patience.
func (e *env) wakes(woken <-chan struct{}) {
	e.Helper()
	if !e.wokenBy(woken, patience) {
		e.Fatal("nobody woke the waiting claim")
	}
}

func (e *env) wokenBy(woken <-chan struct{}, limit time.Duration) bool {
	e.Helper()
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case _, open := <-woken:
		if !open {
			e.Error("the watch broke")
		}
		return true
	case <-t.C:
		return false
	}
}
