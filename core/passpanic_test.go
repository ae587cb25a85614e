package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// panicky is an observer that panics at one kind of event, once.
type panicky struct {
	at   core.Kind
	done bool
}

func (p *panicky) Observe(_ context.Context, e core.Event) {
	if e.Kind == p.at && !p.done {
		p.done = true
		panic("observer")
	}
}

// recovered runs fn, and reports whether it has panicked.
func recovered(fn func()) (panicked bool) {
	defer func() { panicked = recover() != nil }()
	fn()
	return false
}

// A server goes on after a panic of one request. Nothing may be left of that.
func TestAcquireThatPanics(t *testing.T) {
	t.Parallel()
	sim(t, "in the store leaves nothing behind", func(t *testing.T) {
		for name, do := range map[string]bool{"before": false, "after": true} {
			l, store := setup(t)
			store.set(func(_ context.Context, n int, call func() error) error {
				if n < 2 {
					return call()
				}
				if do {
					call()
				}
				store.set(nil, opAcquire)
				panic("store")
			}, opAcquire)
			if !recovered(func() { l.Acquire(t.Context(), "order:1", core.Also("order:2")) }) {
				t.Error("vacuous: nothing has panicked")
			}
			time.Sleep(2 * time.Minute)
			if !isFree(store.inner, "order:1") || !isFree(store.inner, "order:2") {
				t.Errorf("%s: a key is held for ever", name)
			}
			if left := l.Left(); left != "" {
				t.Errorf("%s: left is %s", name, left)
			}
		}
	})
	for _, kind := range []core.Kind{core.Acquired, core.GaveUp, core.Busy} {
		sim(t, "in the observer of "+kind.String()+" leaves nothing behind", func(t *testing.T) {
			l, store := setup(t, core.WithObserver(&panicky{at: kind}))
			if kind != core.Acquired {
				other := newLocker(t, store.inner)
				defer release(t, acquire(t, t.Context(), other, "order:1"))
			}
			if !recovered(func() { l.Acquire(t.Context(), "order:1", core.Wait(time.Second)) }) {
				t.Error("vacuous: nothing has panicked")
			}
			time.Sleep(2 * time.Minute)
			if kind == core.Acquired && !isFree(store.inner, "order:1") {
				t.Error("the key is held for ever")
			}
			if left := l.Left(); left != "" {
				t.Errorf("left is %s", left)
			}
		})
	}
	sim(t, "with a hold that was passed on to it gives that back", func(t *testing.T) {
		for _, watch := range []bool{true, false} {
			p := &panicky{at: core.Acquired, done: true}
			l, store := setup(t, core.WithObserver(p))
			if !watch {
				store.setWatch(func(context.Context, int) (<-chan struct{}, error) { return nil, errBroken })
			}
			first := acquire(t, t.Context(), l, "order:1")
			panicked := make(chan bool)
			go func() {
				panicked <- recovered(func() { l.Acquire(t.Context(), "order:1") })
			}()
			time.Sleep(time.Millisecond)
			next := make(chan *core.Lease, 1)
			go func() {
				lease, err := l.Acquire(t.Context(), "order:1")
				if err != nil {
					t.Error(err)
				}
				next <- lease
			}()
			time.Sleep(time.Millisecond)
			p.done = false
			done := let(first)
			if !<-panicked {
				t.Error("vacuous: nothing has panicked")
			}
			wantErr(t, <-done, nil)
			select {
			case lease := <-next:
				release(t, lease)
			case <-time.After(10 * time.Minute):
				t.Fatal("the next one waits for ever")
			}
			time.Sleep(2 * time.Minute)
			wantFree(t, store.inner, "order:1")
		}
	})
}
