package core_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

// slowAt is an observer that takes a second for the first event of kind.
type slowAt struct {
	recorder
	kind  core.Kind
	begun chan struct{} // closed at the first event of kind
}

func (o *slowAt) Observe(ctx context.Context, e core.Event) {
	if e.Kind == o.kind && len(o.all(e.Kind)) == 0 {
		close(o.begun)
		time.Sleep(time.Second)
	}
	o.recorder.Observe(ctx, e)
}

// TestLease_EndIsItsLastEvent covers hazard 68.
func TestLease_EndIsItsLastEvent(t *testing.T) {
	t.Parallel()
	sim(t, "extension that fails after the release", func(t *testing.T) {
		for _, keys := range [][]string{nil, {"order:2"}} {
			seen := &recorder{}
			l, store := setup(t, core.WithObserver(seen))
			lease := acquire(t, t.Context(), l, "order:1", core.Also(keys...))
			store.set(hang, opExtend)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			release(t, lease)
			time.Sleep(time.Minute)
			if got := seen.kinds(); got != "acquired, released" {
				t.Errorf("got events %s, want acquired, released", got)
			}
		}
	})
	sim(t, "extension that fails after the loss", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(func(context.Context, int, func() error) error {
			time.Sleep(time.Minute) // a store that ignores its context
			return errBroken
		}, opExtend)
		time.Sleep(2 * time.Minute)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
		if got := seen.kinds(); got != "acquired, lost" {
			t.Errorf("got events %s, want acquired, lost", got)
		}
	})
	for kind, f := range map[core.Kind]fault{core.Extended: nil, core.ExtendFailed: loseRequest, core.Overrun: nil} {
		sim(t, "release during "+kind.String(), func(t *testing.T) {
			seen := &slowAt{kind: kind, begun: make(chan struct{})}
			l, store := setup(t, core.WithObserver(seen))
			store.set(f, opExtend)
			lease := acquire(t, t.Context(), l, "order:1", core.MaxHold(15*time.Second))
			<-seen.begun
			release(t, lease)
			time.Sleep(2 * time.Second)
			if got := seen.kinds(); !strings.HasSuffix(got, kind.String()+", released") {
				t.Errorf("got events %s, want released as the last one", got)
			}
		})
	}
}
