package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// pushedTTL is the TTL of a lease that the message grants to its waiter. It exceeds
// patience. So a test fails unless an unused grant expires before its TTL. wokenTTL is
// too short for a grant by message, so the message only wakes the waiter.
const (
	pushedTTL = 3 * patience
	wokenTTL  = store.WaiterLife - time.Second
)

// wakeUps are the kinds of waiters that receive the message. The message says that the
// key is free, or that the waiter has it.
var wakeUps = []struct {
	name string
	play func(w *wakeUp)
	why  string
}{
	{"woken", (*wakeUp).woken, "the waiter asks anyway, and competes with others for the key"},
	{"granted", (*wakeUp).granted, "the grant is of the waiter's own lease: it has it when it next asks"},
	{"granted and left", (*wakeUp).leaves, "the waiter's release ends the grant, heard of or not"},
	{"granted and gone", (*wakeUp).gone, "the grant ends by itself, and is not believed after that"},
}

// TestWakeUps checks the message that wakes a waiter or grants it the key, with each
// mishap, on each kind of Redis.
//
// It covers hazards 39, 43 and 44.
func TestWakeUps(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	var mu sync.Mutex
	bit, grants := make(map[string]int), 0
	// Redisson's message says only that the key is free. TestSharedLocks covers this
	// message.
	all := slices.DeleteFunc(places(t), func(p place) bool { return p.redisson })
	t.Run("all cells", func(t *testing.T) {
		for _, op := range wakeUps {
			for _, m := range mishaps {
				for _, p := range all {
					for trial := range trials() {
						t.Run(fmt.Sprint("wake-up ", op.name, " ", m, " ", p.name, " ", trial+1), func(t *testing.T) {
							t.Parallel()
							w := newWakeUp(t, p, m, trial)
							op.play(w)
							if t.Failed() {
								t.Logf("what was wanted: %s", op.why)
								return
							}
							mu.Lock()
							defer mu.Unlock()
							bit["wake-up "+string(m)]++
							if strings.Contains(w.tap.message(), "\n") {
								grants++
							}
						})
					}
				}
			}
		}
	})
	played := 0
	for _, n := range bit {
		played += n
	}
	if want := len(wakeUps) * len(mishaps) * len(all) * trials(); !t.Failed() && played != want {
		t.Errorf("test setup: %d of %d trials", played, want)
	}
	// Messages grant no keys in a Cluster. Elsewhere they grant no key to the waiter of
	// wakeUps[0], because its TTL is too short.
	if want := (len(wakeUps) - 1) * len(mishaps) * (len(all) - 1) * trials(); !t.Failed() && grants != want {
		t.Errorf("test setup: %d grants by message in %d trials", grants, want)
	}
	tally.Note(t, tally.Facts{
		Part: "matrix", Runs: played, Faults: bit, Outcomes: map[string]int{"done": played},
		Violations: map[string]int{"overlaps": 0, "tokens back": 0, "stuck waiters": 0, "left behind": 0},
	})
}

// wakeUp is one trial. It has a program that receives messages through a tap, a rival
// that holds the key first, and a third program that tries to acquire the key before the
// waiter does.
type wakeUp struct {
	*rig
	tap    *tap
	third  *core.Locker
	store  *redisstore.Store // the program's store, for claims without a Locker
	mu     sync.Mutex
	inside map[*core.Lease]bool
	token  uint64
}

func newWakeUp(t *testing.T, p place, m mishap, trial int) *wakeUp {
	t.Helper()
	key := fmt.Sprint("woken:", number.Add(1))
	w := &wakeUp{inside: make(map[*core.Lease]bool), tap: newTap(t, m, "lk2:{"+key+"} ", trial)}
	ours := p.client(t, trial%2 == 0, w.tap.dial)
	w.rig = &rig{t: t, trial: trial, key: key, locker: p.locker(t, ours), asks: p.client(t, true, nil)}
	w.rival, w.third = p.locker(t, w.asks), p.locker(t, w.asks)
	var err error
	if w.store, err = redisstore.New(ours); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	return w
}

// hold checks that no other lease holds the key and that tokens grow, and releases the
// lease.
func (w *wakeUp) hold(lease *core.Lease) {
	w.mu.Lock()
	for other := range w.inside {
		if other.Context().Err() == nil && lease.Context().Err() == nil {
			w.t.Error("two hold the key")
		}
	}
	w.inside[lease] = true
	if lease.Token() <= w.token {
		w.t.Errorf("token %d comes after %d", lease.Token(), w.token)
	}
	w.token = lease.Token()
	w.mu.Unlock()
	time.Sleep(50 * time.Millisecond) // time in which other programs could acquire the key
	w.mu.Lock()
	delete(w.inside, lease)
	w.mu.Unlock()
	w.leave(lease)
}

// leave releases a lease. A lease that began with a short grant by message may be lost,
// if the machine is too busy to extend it in time.
func (w *wakeUp) leave(lease *core.Lease) {
	if errors.Is(context.Cause(lease.Context()), core.ErrLost) {
		tooBusy.Add(1)
		_ = lease.Release(context.Background())
		return
	}
	leave(w.t, lease)
}

// intrude makes the third program acquire the key up to three times, if it can. The
// returned function stops the attempts, and waits for their end.
func (w *wakeUp) intrude() func() {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for got := 0; got < 3; {
			lease, err := w.third.TryAcquire(context.Background(), w.key)
			if err == nil {
				got++
				w.hold(lease)
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	end := sync.OnceFunc(func() { close(stop); <-done })
	w.t.Cleanup(end)
	return end
}

// waiter starts to wait for the key in the program, and returns when the waiter is in
// the queue.
func (w *wakeUp) waiter(ctx context.Context, ttl time.Duration) <-chan *core.Lease {
	got := waiterOf(ctx, w.t, w.locker, w.key, ttl)
	w.eventually("it is in line", func() bool { return w.places() == 1 })
	return got
}

// waiterOf waits for a key in a goroutine, until ctx is done. The returned channel
// receives the lease, and is closed if there is none.
func waiterOf(ctx context.Context, t *testing.T, l *core.Locker, key string, ttl time.Duration) <-chan *core.Lease {
	got := make(chan *core.Lease, 1)
	go func() {
		defer close(got)
		lease, err := l.Acquire(ctx, key, core.TTL(ttl), core.Wait(patience))
		for errors.Is(err, core.ErrUnavailable) && ctx.Err() == nil {
			lease, err = l.Acquire(ctx, key, core.TTL(ttl), core.Wait(patience)) // busy machine
		}
		if err == nil {
			got <- lease
		} else if ctx.Err() == nil {
			t.Errorf("the waiter: %v", err)
		}
	}()
	return got
}

func served(t *testing.T, got <-chan *core.Lease) *core.Lease {
	t.Helper()
	select {
	case lease, ok := <-got:
		if !ok {
			t.FailNow()
		}
		return lease
	case <-time.After(patience):
		t.Fatal("the waiter is not served")
		return nil
	}
}

// serves plays a waiter whose wake-up has the mishap.
func (w *wakeUp) serves(ttl time.Duration) {
	holder := w.acquire(context.Background(), w.rival)
	got := w.waiter(context.Background(), ttl)
	w.leave(holder)
	w.tap.message()
	end := w.intrude()
	lease := served(w.t, got)
	w.hold(lease)
	end()

	// When the late message arrives, the waiter waits again. The message is about an
	// earlier lease.
	holder = w.acquire(context.Background(), w.rival)
	got = w.waiter(context.Background(), ttl)
	before := w.same()
	w.tap.deliver()
	delete(before, "w")
	after := w.same()
	delete(after, "w")
	if fmt.Sprint(before) != fmt.Sprint(after) {
		w.t.Errorf("the late message made %v of %v", after, before)
	}
	w.hold(holder)
	w.hold(served(w.t, got))
	w.clean()
}

func (w *wakeUp) woken()   { w.serves(wokenTTL) }
func (w *wakeUp) granted() { w.serves(pushedTTL) }

// leaves plays a waiter that leaves while the message that grants it the key is in
// flight.
func (w *wakeUp) leaves() {
	holder := w.acquire(context.Background(), w.rival)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	got := w.waiter(ctx, pushedTTL)
	w.leave(holder)
	w.tap.message()
	cancel()
	end := w.intrude()
	if lease, ok := <-got; ok { // the grant was faster
		_ = lease.Release(context.Background())
	}
	lease := w.acquire(context.Background(), w.rival)
	w.tap.deliver()
	w.hold(lease)
	end()
	w.clean()
}

// gone plays a waiter that does not ask again before its grant has expired, while its
// process keeps listening.
func (w *wakeUp) gone() {
	holder := w.acquire(context.Background(), w.rival)
	dead := store.Claim{
		Key: w.key, Owner: "gone", Lease: "gone", Weight: store.All, Limit: store.All, TTL: pushedTTL, Wait: true, Push: true,
	}
	watching, stop := context.WithCancel(context.Background())
	defer stop()
	w.eventually("it listens", func() bool {
		_, err := w.store.Watch(watching, dead)
		return err == nil
	})
	w.eventually("it is in line", func() bool {
		_, err := w.store.Acquire(context.Background(), dead)
		return errors.Is(err, core.ErrBusy)
	})
	w.leave(holder)
	w.tap.message()
	next := w.acquire(context.Background(), w.rival)
	w.tap.deliver()
	// The grant is too old, whether the message arrives before or after the request.
	w.eventually("the waiter that was gone asks", func() bool {
		g, err := w.store.Acquire(context.Background(), dead)
		if err == nil {
			w.t.Fatalf("the waiter that was gone has %+v", g)
		}
		return errors.Is(err, core.ErrBusy)
	})
	w.eventually("it leaves", func() bool {
		err := w.store.Release(context.Background(), dead)
		return err == nil || errors.Is(err, core.ErrLost)
	})
	w.hold(next)
	w.clean()
}

// clean checks the key after all waiters have gone.
func (w *wakeUp) clean() {
	w.t.Helper()
	lease := w.acquire(context.Background(), w.rival)
	w.hold(lease)
	w.eventually("nothing is left but the token and what was released", func() bool {
		for f := range w.fields() {
			if f != "t" && !strings.HasPrefix(f, "d:") {
				return false
			}
		}
		return true
	})
}
