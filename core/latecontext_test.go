package core_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// A lease's context is made when it is first asked for. That must not be seen.
func TestLateContext(t *testing.T) {
	t.Parallel()
	errGone := errors.New("the caller has gone")
	lose := func(t *testing.T, store *scripted) {
		store.setAll(hang)
		time.Sleep(time.Minute)
	}
	for name, c := range map[string]struct {
		// It has the lease end, and may cancel what it was acquired under.
		end        func(t *testing.T, l *core.Locker, store *scripted, lease *core.Lease, cancel context.CancelCauseFunc)
		err, cause error
	}{
		"a lost lease": {func(t *testing.T, _ *core.Locker, store *scripted, _ *core.Lease, _ context.CancelCauseFunc) {
			lose(t, store)
		}, context.Canceled, core.ErrLost},
		"a lost lease whose caller went later": {func(t *testing.T, _ *core.Locker, store *scripted, _ *core.Lease, cancel context.CancelCauseFunc) {
			lose(t, store)
			cancel(errGone)
		}, context.Canceled, core.ErrLost},
		"a lease that was lost when its caller had gone": {func(t *testing.T, _ *core.Locker, store *scripted, _ *core.Lease, cancel context.CancelCauseFunc) {
			cancel(errGone)
			lose(t, store)
		}, context.Canceled, errGone},
		"a lease that was lost when its caller's time was over": {func(t *testing.T, _ *core.Locker, store *scripted, _ *core.Lease, _ context.CancelCauseFunc) {
			time.Sleep(2 * time.Hour)
			lose(t, store)
		}, context.DeadlineExceeded, context.DeadlineExceeded},
		"a released lease": {func(t *testing.T, _ *core.Locker, _ *scripted, lease *core.Lease, cancel context.CancelCauseFunc) {
			release(t, lease)
			cancel(errGone)
		}, context.Canceled, context.Canceled},
		"a lease of a Locker that was closed": {func(t *testing.T, l *core.Locker, _ *scripted, _ *core.Lease, cancel context.CancelCauseFunc) {
			ended, stop := context.WithCancel(t.Context())
			stop()
			if err := l.Close(ended); err == nil {
				t.Error("Close waited for nothing")
			}
			cancel(errGone)
		}, context.Canceled, core.ErrClosed},
	} {
		sim(t, "asked for late, that of "+name+" has ended, and tells why", func(t *testing.T) {
			l, store := setup(t)
			defer store.setAll(nil)
			under, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			under, cancel := context.WithCancelCause(under)
			lease := acquire(t, under, l, "order:1")
			c.end(t, l, store, lease, cancel)
			ctx := lease.Context()
			select {
			case <-ctx.Done():
			default:
				t.Fatal("it has not ended")
			}
			if err, cause := ctx.Err(), context.Cause(ctx); err != c.err || cause != c.cause {
				t.Errorf("it ended with %v because of %v, want %v because of %v", err, cause, c.err, c.cause)
			}
			if found, _ := core.LeaseFromContext(ctx); found != lease || lease.Context() != ctx {
				t.Error("it is not the context of the lease")
			}
			store.setAll(nil)
			_ = lease.Release(t.Context())
			if cause := context.Cause(ctx); cause != c.cause {
				t.Errorf("after the release it ended because of %v", cause)
			}
		})
	}
	sim(t, "asked for before the loss, it ends with the loss", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		child, cancel := context.WithCancel(lease.Context())
		defer cancel()
		lose(t, store)
		wantErr(t, context.Cause(child), core.ErrLost)
		store.setAll(nil)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
}
