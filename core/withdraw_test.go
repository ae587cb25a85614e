package core_test

import (
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

func TestAcquire_WithdrawsItsPlace(t *testing.T) {
	t.Parallel()
	waiters := func(t *testing.T, s *scripted) int {
		t.Helper()
		state, err := s.inner.(store.Inspector).Look(t.Context(), "order:1")
		if err != nil {
			t.Fatal(err)
		}
		return len(state.Waiters)
	}
	for name, o := range map[string][]core.AcquireOption{"fair": {core.Fair()}, "usual": nil, "reader": {core.Shared()}} {
		sim(t, name+" waiter gives up", func(t *testing.T) {
			l, store := setup(t)
			holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
			store.set(slow(10*time.Millisecond, 10*time.Millisecond), opAcquire, opRelease)
			time.AfterFunc(time.Second/2, func() {
				if n := waiters(t, store); n != 1 {
					t.Errorf("got %d waiters meanwhile, want 1", n)
				}
			})
			_, err := l.Acquire(t.Context(), "order:1", append(o, core.Wait(time.Second))...)
			wantErr(t, err, core.ErrBusy)
			if n := waiters(t, store); n != 0 {
				t.Errorf("got %d waiters, want none", n)
			}
			release(t, holder)
		})
	}
	sim(t, "store without an answer", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		store.set(hang, opRelease)
		start := time.Now()
		_, err := l.Acquire(t.Context(), "order:1", core.Wait(time.Second))
		wantErr(t, err, core.ErrBusy)
		if took := time.Since(start); took > 1500*time.Millisecond {
			t.Errorf("got %v, want at most half a second beside the wait", took)
		}
		store.set(nil, opRelease)
		time.Sleep(3 * time.Second)
		if n := waiters(t, store); n != 0 {
			t.Errorf("got %d waiters, want none", n)
		}
		release(t, holder)
	})
	sim(t, "refused at once", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		_, err := l.TryAcquire(t.Context(), "order:1", core.Fair())
		wantErr(t, err, core.ErrBusy)
		if n := store.count(opRelease); n != 0 {
			t.Errorf("got %d releases, want none", n)
		}
		release(t, holder)
	})
}
