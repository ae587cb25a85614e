package named_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/named"
	"github.com/lockkit/lockkit/core/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "issue_cert_*.example.com"

// sim runs fn as a subtest in virtual time.
func sim(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, fn)
	})
}

// link is the connection of one process to a shared store.
type link struct {
	*memstore.Store
	cut atomic.Bool
}

var errCut = fmt.Errorf("cut off: %w", core.ErrUnavailable)

func (s *link) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if s.cut.Load() {
		return store.Grant{}, errCut
	}
	return s.Store.Acquire(ctx, c)
}

func (s *link) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	if !s.cut.Load() {
		return s.Store.Extend(ctx, claims)
	}
	answers := make([]store.Extension, len(claims))
	for i := range answers {
		answers[i].Err = errCut
	}
	return answers
}

// process returns a new Locker, which stands for a process, and its connection to store.
func process(t *testing.T, store *memstore.Store) (*core.Locker, *link) {
	t.Helper()
	s := &link{Store: store}
	l, err := core.New(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l, s
}

func locks(t *testing.T, store *memstore.Store) *named.Locks {
	t.Helper()
	l, _ := process(t, store)
	return named.New(l)
}

func want(t *testing.T, err error, want ...error) {
	t.Helper()
	if len(want) == 0 && err != nil {
		t.Errorf("got %v", err)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got %v, want %v", err, w)
		}
	}
}

func wantTry(t *testing.T, l *named.Locks, name string, ok bool) {
	t.Helper()
	if got, err := l.TryLock(t.Context(), name); got != ok || err != nil {
		t.Errorf("TryLock: %v, %v, want %v", got, err, ok)
	}
}

func TestLocks(t *testing.T) {
	t.Parallel()
	sim(t, "one caller of one process", func(t *testing.T) {
		store := memstore.New()
		all := []*named.Locks{locks(t, store), locks(t, store), locks(t, store)}
		var holders, most atomic.Int32
		var done sync.WaitGroup
		for i := range 30 {
			done.Go(func() {
				l := all[i%len(all)]
				want(t, l.Lock(t.Context(), name))
				most.Store(max(most.Load(), holders.Add(1)))
				time.Sleep(time.Second)
				holders.Add(-1)
				want(t, l.Unlock(t.Context(), name))
			})
		}
		done.Wait()
		if most.Load() != 1 {
			t.Errorf("%d had it at once", most.Load())
		}
	})
	// TryLock returns false for a name that this process or another process has taken.
	sim(t, "TryLock of a taken name", func(t *testing.T) {
		store := memstore.New()
		one, other := locks(t, store), locks(t, store)
		wantTry(t, one, name, true)
		wantTry(t, one, name, false)
		wantTry(t, other, name, false)
		wantTry(t, other, "another name", true)
		want(t, one.Unlock(t.Context(), name))
		wantTry(t, other, name, true)
		want(t, other.Unlock(t.Context(), name))
		want(t, other.Unlock(t.Context(), "another name"))
	})
	// A second Lock waits for Unlock, or until its context is done.
	sim(t, "second Lock", func(t *testing.T) {
		store := memstore.New()
		l, other := locks(t, store), locks(t, store)
		want(t, l.Lock(t.Context(), name))
		cause := errors.New("no patience")
		for _, who := range []*named.Locks{l, other} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
			want(t, who.Lock(ctx, name), core.ErrBusy, cause)
			cancel()
		}
		taken := make(chan error)
		go func() { taken <- l.Lock(t.Context(), name) }()
		synctest.Wait()
		want(t, l.Unlock(t.Context(), name))
		want(t, <-taken)
		wantTry(t, other, name, false)
		want(t, l.Unlock(t.Context(), name))
		wantTry(t, other, name, true)
		want(t, other.Unlock(t.Context(), name))
	})
	// A name stays taken when the context of Lock is done, and Unlock works with a
	// canceled context.
	sim(t, "canceled contexts", func(t *testing.T) {
		store := memstore.New()
		l, other := locks(t, store), locks(t, store)
		ctx, cancel := context.WithCancel(t.Context())
		want(t, l.Lock(ctx, name))
		cancel()
		time.Sleep(time.Hour)
		wantTry(t, other, name, false)
		want(t, l.Unlock(ctx, name))
		wantTry(t, other, name, true)
		want(t, other.Unlock(ctx, name))
		want(t, l.Lock(ctx, name), context.Canceled)
		if _, err := l.TryLock(ctx, name); !errors.Is(err, context.Canceled) {
			t.Errorf("TryLock under an ended context: %v", err)
		}
	})
	// An Unlock without Lock is invalid, and does not free a name that another process
	// has taken.
	sim(t, "Unlock without Lock", func(t *testing.T) {
		store := memstore.New()
		l, other := locks(t, store), locks(t, store)
		want(t, l.Unlock(t.Context(), name), core.ErrInvalid)
		want(t, other.Lock(t.Context(), name))
		want(t, l.Unlock(t.Context(), name), core.ErrInvalid)
		want(t, l.RenewLockLease(t.Context(), name, time.Minute), core.ErrInvalid)
		wantTry(t, l, name, false)
		want(t, other.RenewLockLease(t.Context(), name, time.Minute))
		want(t, other.Unlock(t.Context(), name))
		want(t, other.Unlock(t.Context(), name), core.ErrInvalid)
	})
	// A lost name stays taken in its process until Unlock, which returns ErrLost.
	sim(t, "lost name", func(t *testing.T) {
		store := memstore.New()
		lk, link := process(t, store)
		l, other := named.New(lk), locks(t, store)
		want(t, l.Lock(t.Context(), name))
		link.cut.Store(true)
		time.Sleep(time.Minute)
		want(t, l.RenewLockLease(t.Context(), name, time.Minute), core.ErrLost)
		link.cut.Store(false)
		wantTry(t, l, name, false)
		wantTry(t, other, name, true)
		next := make(chan error)
		go func() { next <- l.Lock(t.Context(), name) }()
		synctest.Wait()
		want(t, l.Unlock(t.Context(), name), core.ErrLost)
		// The Unlock has not freed the name for a third process, because the other
		// process has taken it.
		synctest.Wait()
		wantTry(t, locks(t, store), name, false)
		want(t, other.Unlock(t.Context(), name))
		want(t, <-next)
		want(t, l.Unlock(t.Context(), name))
	})
	// If the context of Lock is done after the lock was taken, the lock is still
	// extended.
	sim(t, "context of Lock is done", func(t *testing.T) {
		lk, link := process(t, memstore.New())
		l := named.New(lk)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		want(t, l.Lock(ctx, name))
		for range 10 {
			time.Sleep(time.Minute)
			want(t, l.RenewLockLease(t.Context(), name, time.Minute))
		}
		link.cut.Store(true)
		time.Sleep(time.Minute)
		want(t, l.RenewLockLease(t.Context(), name, time.Minute), core.ErrLost)
		link.cut.Store(false)
		want(t, l.Unlock(t.Context(), name), core.ErrLost)
	})
	// A failed Lock leaves the name free in this process.
	sim(t, "failed Lock", func(t *testing.T) {
		lk, link := process(t, memstore.New())
		l := named.New(lk)
		link.cut.Store(true)
		want(t, l.Lock(t.Context(), name), core.ErrUnavailable)
		if _, err := l.TryLock(t.Context(), name); !errors.Is(err, core.ErrUnavailable) {
			t.Errorf("TryLock: %v", err)
		}
		link.cut.Store(false)
		wantTry(t, l, name, true)
		want(t, l.Unlock(t.Context(), name))
	})
	// Any text is a valid name, and different texts are different names.
	sim(t, "any text", func(t *testing.T) {
		l := locks(t, memstore.New())
		names := []string{"", "a", "a:b", "a%3Ab", "{a}", "a\n", "\xff", "*", "päth/to"}
		for _, n := range names {
			wantTry(t, l, n, true)
		}
		for _, n := range names {
			want(t, l.Unlock(t.Context(), n))
		}
	})
	sim(t, "panics of the constructors", func(t *testing.T) {
		lk, _ := process(t, memstore.New())
		for what, make := range map[string]func(){
			"no locker":        func() { named.New(nil) },
			"a bad option":     func() { named.New(lk, core.TTL(1)) },
			"DB, a nil option": func() { named.NewDB(lk, "x", nil) },
			"Plain, no time":   func() { named.NewPlain(lk, 0) },
			"Seen, no time":    func() { named.NewSeen(lk, 0) },
			"Seen, no locker":  func() { named.NewSeen(nil, time.Second) },
			"Seen, too long":   func() { named.NewSeen(lk, 1000*time.Hour) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: no panic", what)
					}
				}()
				make()
			}()
		}
	})
}

func TestVariations(t *testing.T) {
	t.Parallel()
	// A DB is one lock for all processes.
	sim(t, "DB", func(t *testing.T) {
		store := memstore.New()
		a, _ := process(t, store)
		b, _ := process(t, store)
		one, other := named.NewDB(a, "migrations"), named.NewDB(b, "migrations")
		want(t, one.Lock(t.Context(), nil))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		want(t, other.Lock(ctx, nil), core.ErrBusy)
		want(t, one.Unlock(t.Context(), nil))
		want(t, other.Lock(t.Context(), nil))
		want(t, other.Unlock(t.Context(), nil))
	})
	// Lock of a Plain waits no longer than its limit, and its keys differ from the keys
	// of Locks.
	sim(t, "Plain", func(t *testing.T) {
		store := memstore.New()
		lk, _ := process(t, store)
		p, l := named.NewPlain(lk, 10*time.Second), locks(t, store)
		want(t, p.Lock("key"))
		wantTry(t, l, "key", true)
		start := time.Now()
		want(t, p.Lock("key"), core.ErrBusy)
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("got a wait of %v", d)
		}
		want(t, p.Unlock("key"))
		want(t, l.Unlock(t.Context(), "key"))
		want(t, p.Unlock("key"), core.ErrInvalid)
	})
	// IsDuplicate returns false to only one of many callers. After the key is
	// forgotten, it returns false to one caller again.
	sim(t, "Seen", func(t *testing.T) {
		store := memstore.New()
		var fresh atomic.Int32
		for round := range 3 {
			var done sync.WaitGroup
			for range 3 {
				lk, _ := process(t, store)
				s := named.NewSeen(lk, time.Hour)
				for range 10 {
					done.Go(func() {
						duplicate, err := s.IsDuplicate(t.Context(), "key")
						want(t, err)
						if !duplicate {
							fresh.Add(1)
						}
					})
				}
			}
			done.Wait()
			if n := fresh.Load(); n != int32(round)/2+1 {
				t.Fatalf("round %d: got it new %d times", round, n)
			}
			time.Sleep(31 * time.Minute)
		}
	})
	sim(t, "Seen without an answer", func(t *testing.T) {
		lk, link := process(t, memstore.New())
		link.cut.Store(true)
		_, err := named.NewSeen(lk, time.Hour).IsDuplicate(t.Context(), "key")
		want(t, err, core.ErrUnavailable)
		link.cut.Store(false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = named.NewSeen(lk, time.Hour).IsDuplicate(ctx, "key")
		want(t, err, context.Canceled)
	})
}

// TestRenewLockLease_Revoked checks that a name is not renewed right after the loss. It
// needs a clock that does not stand still.
func TestRenewLockLease_Revoked(t *testing.T) {
	t.Parallel()
	db, lost := memstore.New(), make(chan struct{}, 1)
	lk, err := core.New(db, core.WithDefaults(core.TTL(3*time.Second)), core.WithObserver(observer(func(e core.Event) {
		if e.Kind == core.Lost {
			lost <- struct{}{}
		}
	})))
	if err != nil {
		t.Fatal(err)
	}
	l := named.New(lk)
	want(t, l.Lock(t.Context(), name))
	states, _, err := db.List(t.Context(), "", 10)
	if err != nil || len(states) != 1 || len(states[0].Holds) != 1 {
		t.Fatalf("test setup: got %+v, %v", states, err)
	}
	want(t, db.Revoke(t.Context(), states[0].Key, states[0].Holds[0].ID, time.Minute))
	<-lost
	want(t, l.RenewLockLease(t.Context(), name, time.Minute), core.ErrLost)
	want(t, l.Unlock(t.Context(), name), core.ErrLost)
}

type observer func(e core.Event)

func (f observer) Observe(_ context.Context, e core.Event) { f(e) }
