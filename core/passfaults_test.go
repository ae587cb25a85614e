package core_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

type tokenless struct{ *memstore.Store }

func (s tokenless) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.MinToken > 0 {
		return store.Grant{}, core.ErrUnsupported
	}
	g, err := s.Store.Acquire(ctx, c)
	g.Token = 0
	return g, err
}

func TestPassingOnWithoutTokens(t *testing.T) {
	t.Parallel()
	sim(t, "leases follow each other", func(t *testing.T) {
		store := newScripted(tokenless{memstore.New()})
		l := newLocker(t, store)
		lease, x := row(t, l, store, 3)
		calls := store.count(opAcquire, opRelease)
		for n := 1; n <= 3; n++ {
			done := let(lease)
			lease = x.take(n)
			wantErr(t, <-done, nil)
			if lease.Token() != 0 {
				t.Errorf("token %d", lease.Token())
			}
		}
		if n := store.count(opAcquire, opRelease) - calls; n != 0 {
			t.Errorf("%d calls", n)
		}
		release(t, lease)
		wantFree(t, store.inner, "order:1")
	})
	// At a store without tokens, a caller with Fenced gets no lease, and the callers
	// behind it get leases.
	sim(t, "Fenced gets no lease", func(t *testing.T) {
		store := newScripted(tokenless{memstore.New()})
		l := newLocker(t, store)
		fenced := make(chan error, 1)
		first, x := rowBefore(t, l, store, func(x *waiting) {
			go func() {
				_, err := l.Acquire(t.Context(), "order:1", core.Fenced())
				fenced <- err
			}()
			synctest.Wait()
			x.wait(t.Context())
		})
		release(t, first)
		wantErr(t, <-fenced, core.ErrUnsupported)
		release(t, x.take(1))
		store.forget()
		lease, _ := row(t, l, store, 0) // without waiters
		release(t, lease)
	})
}

func TestPassingOnUnderFaults(t *testing.T) {
	t.Parallel()
	// A late Extend of a released lease does not extend the hold of the next lease.
	sim(t, "late Extend", func(t *testing.T) {
		store := newScripted(memstore.New())
		l, err := core.New(store)
		if err != nil {
			t.Fatal(err)
		}
		var looks atomic.Int32
		stopped, goOn := make(chan struct{}), make(chan struct{})
		l.SetAsleep(func() time.Duration {
			if looks.Load() > 0 && looks.Add(-1) == 0 {
				close(stopped)
				<-goOn
			}
			return 0
		})
		first, x := row(t, l, store, 1)
		looks.Store(2) // pauses Extend after it has checked that the lease is held
		extended := make(chan error, 1)
		go func() { extended <- first.Extend(t.Context(), time.Hour) }()
		<-stopped
		done := let(first)
		next := x.take(1)
		wantErr(t, <-done, nil)
		close(goOn)
		wantErr(t, <-extended, core.ErrLost)
		store.setAll(hang) // the process dies
		if took := freeAfter(store.inner, "order:1"); took > 31*time.Second {
			t.Errorf("the key was free %v later", took)
		}
		store.setAll(nil)
		wantErr(t, next.Release(t.Context()), core.ErrLost)
		wantErr(t, l.Close(t.Context()), nil)
	})
	// After a long Extend without an answer, the hold is released even if the store
	// does not answer for minutes.
	sim(t, "late answer to a release", func(t *testing.T) {
		l, store := setup(t)
		lease, _ := row(t, l, store, 0, core.TTL(3*time.Second))
		store.setAll(nil)
		store.set(loseReply, opExtend)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		wantErr(t, lease.Extend(ctx, time.Hour), core.ErrUnavailable)
		cancel()
		store.setAll(hang)
		lossTime(t, lease)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		time.Sleep(2 * time.Minute)
		wantHeld(t, store.inner, "order:1")
		store.setAll(nil)
		time.Sleep(10 * time.Second)
		wantFree(t, store.inner, "order:1")
	})
	// A panic in one release does not leave other releases waiting.
	sim(t, "panic in one release", func(t *testing.T) {
		l, store := setup(t)
		lease, x := row(t, l, store, 3)
		store.set(func(_ context.Context, _ int, do func() error) error {
			time.Sleep(5 * time.Millisecond) // the release overtakes the confirmation
			return do()
		}, opExtend)
		asks := let(lease)
		lease = x.take(1)
		// This release waits for the next confirmation, and gets the answer to the next
		// release.
		waits := let(lease)
		next := x.take(2)
		synctest.Wait()
		next.Owner() // so the hold is not passed on
		store.set(first(1, func(context.Context, int, func() error) error { panic("store") }), opRelease)
		var recovered any
		func() {
			defer func() { recovered = recover() }()
			_ = next.Release(t.Context())
		}()
		if recovered == nil {
			t.Error("test setup: got no panic")
		}
		wantErr(t, <-waits, core.ErrUnavailable)
		wantErr(t, <-asks, nil)
		wantErr(t, next.Release(t.Context()), core.ErrUnavailable)
		release(t, x.take(3))
	})
	// If the confirmation of a release finds the loss of the hold, the release reports
	// the loss. The first try of the next release has no answer.
	sim(t, "loss before an unanswered release", func(t *testing.T) {
		for name, f := range map[string]fault{"reply": loseReply, "request": loseRequest} {
			l, store := setup(t)
			lease, x := row(t, l, store, 2)
			store.set(func(_ context.Context, _ int, do func() error) error {
				err := do() // finds the loss, and the answer comes later
				time.Sleep(5 * time.Millisecond)
				return err
			}, opExtend)
			x.deleteHold()
			done := let(lease)
			next := x.take(1)
			next.Owner()
			store.set(first(1, f), opRelease)
			if err := next.Release(t.Context()); err != nil && !errors.Is(err, core.ErrLost) {
				t.Errorf("the %s is lost: %v", name, err)
			}
			wantErr(t, <-done, core.ErrLost)
			_ = x.take(2).Release(t.Context())
		}
	})
	// The field Held of Released does not include the wait for the answer to the
	// release.
	sim(t, "time held", func(t *testing.T) {
		events := &recorder{}
		l, store := setup(t, core.WithObserver(events))
		lease, x := row(t, l, store, 1)
		store.set(hang, opExtend)
		done := let(lease)
		next := x.take(1)
		wantErr(t, <-done, core.ErrUnavailable)
		if held := events.all(core.Released)[0].Held; held > time.Millisecond {
			t.Errorf("held for %v", held)
		}
		store.set(nil, opExtend)
		release(t, next)
	})
}
