package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// load is the work of some processes on some keys while a test changes the servers. It
// consists of contended short leases, and of long leases that must not be lost.
type load struct {
	t      testing.TB
	oracle *oracle
	stop   chan struct{}
	work   sync.WaitGroup

	mu      sync.Mutex
	refused int // the number of calls that the store could not answer
	lost    int // the number of short leases that were lost
}

// startLoad starts a load. The short leases are of the keys in keys, and the long
// leases of the keys in held. If patient is set, the store may be unreachable for a
// while, but no long lease may be lost. Otherwise only a few calls may fail, for
// example on a busy machine.
func startLoad(t testing.TB, client func() redis.UniversalClient, keys, held []string, patient bool, opts ...redisstore.Option) *load {
	t.Helper()
	l := &load{t: t, oracle: newOracle(), stop: make(chan struct{})}
	var processes []*core.Locker
	for range 5 {
		processes = append(processes, process(t, client(), opts...))
	}
	t.Cleanup(l.end)
	holder, rival := processes[0], processes[1]
	for _, p := range processes[2:] {
		for range 2 {
			l.work.Go(func() { l.contend(p, keys, patient) })
		}
	}
	ttl := 6 * time.Second
	if patient {
		ttl = 20 * time.Second
	}
	var ready sync.WaitGroup
	for i, key := range held {
		ready.Add(1)
		l.work.Go(func() { l.hold(holder, rival, key, ttl, patient, i == 0, ready.Done) })
	}
	ready.Wait()
	if !patient {
		t.Cleanup(func() {
			l.end()
			if most := 5 + l.oracle.count()/20; l.refused > most {
				t.Errorf("%d calls had no answer, want %d at most", l.refused, most)
			}
		})
	}
	return l
}

// bears reports whether err has to be tolerated, and counts err.
func (l *load) bears(err error, patient bool) bool {
	if !errors.Is(err, store.ErrUnavailable) {
		return false
	}
	late := errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "no answer within")
	if !patient && !late {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused++
	return true
}

func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.work.Wait()
}

func (l *load) progress(n int) {
	l.t.Helper()
	before := l.oracle.count()
	testserver.Eventually(l.t, 2*time.Minute, "leases are taken", func() bool { return l.oracle.count() >= before+n })
}

func (l *load) running() bool {
	select {
	case <-l.stop:
		return false
	default:
		return true
	}
}

// contend acquires one key after the other for a moment each. The test fails if a
// caller waits for a minute.
func (l *load) contend(p *core.Locker, keys []string, patient bool) {
	for l.running() {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		lease, err := p.Acquire(ctx, keys[rand.N(len(keys))], core.TTL(10*time.Second), core.Fair())
		cancel()
		switch {
		case err == nil:
		case ctx.Err() != context.DeadlineExceeded && l.bears(err, patient):
			time.Sleep(20 * time.Millisecond)
			continue
		default:
			l.t.Errorf("acquire: %v", err)
			return
		}
		v := l.oracle.enter(lease)
		v.work(rand.N(5 * time.Millisecond))
		err = v.leave()
		time.Sleep(rand.N(30 * time.Millisecond)) // gives other tests processor time
		switch {
		case err == nil:
		case l.bears(err, patient): // the clean-up continues
		case patient && errors.Is(err, store.ErrLost):
			l.mu.Lock()
			l.lost++
			l.mu.Unlock()
		default:
			l.t.Errorf("release: %v", err)
			return
		}
	}
}

// hold holds key all the time. If first is set, hold also extends the lease in addition
// to the watchdog, and makes a rival try to acquire key.
func (l *load) hold(p, rival *core.Locker, key string, ttl time.Duration, patient, first bool, ready func()) {
	lease, err := p.Acquire(context.Background(), key, core.TTL(ttl))
	if err != nil {
		l.t.Errorf("acquire a long lease: %v", err)
		ready()
		return
	}
	v := l.oracle.enter(lease)
	ready()
	for l.running() {
		v.work(30 * time.Millisecond)
		if !v.believe() {
			l.t.Errorf("a long lease was lost: %v", context.Cause(lease.Context()))
			break
		}
		if !first {
			continue
		}
		if err := lease.Extend(context.Background(), ttl); err != nil && !l.bears(err, patient) {
			l.t.Errorf("extend: %v", err)
			break
		}
		other, err := rival.TryAcquire(context.Background(), key, core.TTL(ttl))
		if err == nil {
			w := l.oracle.enter(other)
			w.work(time.Millisecond)
			_ = w.leave()
		} else if !errors.Is(err, store.ErrBusy) && !l.bears(err, patient) {
			l.t.Errorf("a rival's attempt: %v", err)
			break
		}
	}
	if err := v.leave(); err != nil {
		l.t.Errorf("release a long lease: %v", err)
	}
}
