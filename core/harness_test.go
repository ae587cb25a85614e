package core_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // most tests lose leases, which would be logged
	goleak.VerifyTestMain(m)
}

// sim runs fn as a subtest in virtual time. After fn has returned, all goroutines that
// it has started must return too.
func sim(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, fn)
	})
}

// newLocker returns a Locker that is closed at the end of the test. The test fails if
// the closed Locker has work left. The Locker ignores suspensions of the machine that
// runs the test, because virtual time does not include them.
func newLocker(t *testing.T, store core.Store, opts ...core.Option) *core.Locker {
	t.Helper()
	l, err := core.New(store, append([]core.Option{core.WithAsleep(nil)}, opts...)...)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		if left := l.Left(); left != "" {
			t.Errorf("a closed Locker still has %s", left)
		}
	})
	return l
}

func memStore() core.Store { return memstore.New() }

// setup returns a Locker and its store, in which the test can set faults.
func setup(t *testing.T, opts ...core.Option) (*core.Locker, *scripted) {
	t.Helper()
	store := newScripted(memstore.New())
	return newLocker(t, store, opts...), store
}

func acquire(t *testing.T, ctx context.Context, l *core.Locker, key string, opts ...core.AcquireOption) *core.Lease {
	t.Helper()
	lease, err := l.Acquire(ctx, key, opts...)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return lease
}

func release(t *testing.T, lease *core.Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Fatalf("Release: %v", err)
	}
}

// wantErr fails the test unless err matches all of the errors in want.
func wantErr(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Fatalf("got error %v, want one that matches %v", err, w)
		}
	}
}

func wantNot(t *testing.T, err error, these ...error) {
	t.Helper()
	for _, e := range these {
		if errors.Is(err, e) {
			t.Fatalf("got error %v, want one that does not match %v", err, e)
		}
	}
}

// stranger returns a fair claim of another owner for the whole key. The claim is
// refused while the key has a hold or a fair waiter.
func stranger(key string) store.Claim {
	id := rand.Text()
	return store.Claim{
		Key: key, Owner: id, Lease: id, Weight: store.All, Limit: store.All,
		TTL: 100 * time.Millisecond, Fair: true,
	}
}

// isFree reports whether key has no hold and no fair waiter at the store.
func isFree(store core.Store, key string) bool {
	c := stranger(key)
	if _, err := store.Acquire(context.Background(), c); err != nil {
		return false
	}
	return store.Release(context.Background(), c) == nil
}

func wantFree(t *testing.T, store core.Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if !isFree(store, key) {
			t.Fatalf("%s is not free, want it free", key)
		}
	}
}

func wantHeld(t *testing.T, store core.Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if isFree(store, key) {
			t.Fatalf("%s is free, want it held", key)
		}
	}
}

func freeAfter(store core.Store, key string) time.Duration {
	start := time.Now()
	for !isFree(store, key) {
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

func wantHeldLease(t *testing.T, lease *core.Lease) {
	t.Helper()
	if err := lease.Context().Err(); err != nil {
		t.Fatalf("got a context that is done: %v, cause %v", err, context.Cause(lease.Context()))
	}
	if !lease.Deadline().After(time.Now()) {
		t.Fatal("the lease's deadline has passed")
	}
}

func wantLost(t *testing.T, lease *core.Lease) {
	t.Helper()
	if lease.Context().Err() == nil {
		t.Fatal("got a context that is not done, want it lost")
	}
	wantErr(t, context.Cause(lease.Context()), core.ErrLost)
	if lease.Deadline().After(time.Now()) {
		t.Fatal("the deadline of a lost lease is still to come")
	}
}

// lossTime waits until the lease is lost, and returns the time of the loss. It fails
// the test if the lease's context is done with another cause.
func lossTime(t *testing.T, lease *core.Lease) time.Time {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(2 * time.Hour):
		t.Fatal("the lease was not lost within two hours")
	}
	wantErr(t, context.Cause(lease.Context()), core.ErrLost)
	return time.Now()
}

type recorder struct {
	mu     sync.Mutex
	events []core.Event
}

func (r *recorder) Observe(_ context.Context, e core.Event) {
	noMutex()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) all(kind core.Kind) []core.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var some []core.Event
	for _, e := range r.events {
		if e.Kind == kind {
			some = append(some, e)
		}
	}
	return some
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

// kinds returns the kinds of all events in order, separated by commas.
func (r *recorder) kinds() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, e := range r.events {
		names = append(names, e.Kind.String())
	}
	return strings.Join(names, ", ")
}

func raise(most *atomic.Int32, n int32) {
	for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
	}
}
