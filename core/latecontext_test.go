package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// TestLateContext checks that the context of a released or lost lease has the right
// cause, even if the context is first read much later.
func TestLateContext(t *testing.T) {
	t.Parallel()
	errGone := errors.New("the caller has gone")
	lose := func(t *testing.T, store *scripted) {
		store.setAll(hang)
		time.Sleep(time.Minute)
	}
	for name, c := range map[string]struct {
		// end loses or releases the lease, and may cancel the context of the lease's
		// acquire.
		end        func(t *testing.T, l *core.Locker, store *scripted, lease *core.Lease, cancel context.CancelCauseFunc)
		err, cause error
	}{
		"lost": {func(t *testing.T, _ *core.Locker, store *scripted, _ *core.Lease, _ context.CancelCauseFunc) {
			lose(t, store)
		}, context.Canceled, core.ErrLost},
		"lost before its caller left": {func(t *testing.T, _ *core.Locker, store *scripted, _ *core.Lease, cancel context.CancelCauseFunc) {
			lose(t, store)
			cancel(errGone)
		}, context.Canceled, core.ErrLost},
		"lost after its caller left": {func(t *testing.T, _ *core.Locker, store *scripted, _ *core.Lease, cancel context.CancelCauseFunc) {
			cancel(errGone)
			lose(t, store)
		}, context.Canceled, errGone},
		"lost after the deadline": {func(t *testing.T, _ *core.Locker, store *scripted, _ *core.Lease, _ context.CancelCauseFunc) {
			time.Sleep(2 * time.Hour)
			lose(t, store)
		}, context.DeadlineExceeded, context.DeadlineExceeded},
		"released": {func(t *testing.T, _ *core.Locker, _ *scripted, lease *core.Lease, cancel context.CancelCauseFunc) {
			release(t, lease)
			cancel(errGone)
		}, context.Canceled, context.Canceled},
		"closed Locker": {func(t *testing.T, l *core.Locker, _ *scripted, _ *core.Lease, cancel context.CancelCauseFunc) {
			ended, stop := context.WithCancel(t.Context())
			stop()
			if err := l.Close(ended); err == nil {
				t.Error("Close waited for nothing")
			}
			cancel(errGone)
		}, context.Canceled, core.ErrClosed},
	} {
		for _, under := range []string{"context", "background"} {
			if under == "background" && c.cause != core.ErrLost && c.cause != core.ErrClosed && c.cause != context.Canceled {
				continue
			}
			sim(t, name+" under "+under, func(t *testing.T) {
				l, store := setup(t)
				defer store.setAll(nil)
				limited, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				of, cancel := context.WithCancelCause(limited)
				if under == "background" {
					of = context.WithoutCancel(of)
				}
				lease := acquire(t, of, l, "order:1")
				c.end(t, l, store, lease, cancel)
				ctx := lease.Context()
				select {
				case <-ctx.Done():
				default:
					t.Fatal("got a context that is not done")
				}
				if err, cause := ctx.Err(), context.Cause(ctx); err != c.err || cause != c.cause {
					t.Errorf("got %v with cause %v, want %v with cause %v", err, cause, c.err, c.cause)
				}
				if found, _ := core.LeaseFromContext(ctx); found != lease || lease.Context() != ctx {
					t.Error("got a context of another lease")
				}
				store.setAll(nil)
				_ = lease.Release(t.Context())
				if cause := context.Cause(ctx); cause != c.cause {
					t.Errorf("after the release: got cause %v", cause)
				}
			})
		}
	}
	// A context that was derived before the loss is canceled by the loss.
	sim(t, "read before the loss", func(t *testing.T) {
		l, store := setup(t)
		defer store.setAll(nil)
		lease := acquire(t, context.Background(), l, "order:1")
		child, cancel := context.WithCancel(lease.Context())
		defer cancel()
		lose(t, store)
		wantErr(t, context.Cause(child), core.ErrLost)
		store.setAll(nil)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
}

// TestContext_UsedAgain checks leases under contexts that are reused for another
// request, like the contexts of gin.
func TestContext_UsedAgain(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, store *scripted, lease *core.Lease){
		"lost": func(t *testing.T, store *scripted, _ *core.Lease) {
			store.setAll(hang)
			time.Sleep(time.Minute)
			store.setAll(nil)
		},
		"released": func(t *testing.T, _ *scripted, lease *core.Lease) { release(t, lease) },
	} {
		sim(t, name+" lease stays done", func(t *testing.T) {
			l, store := setup(t)
			first, done := context.WithCancel(t.Context())
			request := &pooled{}
			request.use(first)
			lease := acquire(t, request, l, "order:1")
			done()
			end(t, store, lease)
			request.use(t.Context())
			select {
			case <-lease.Context().Done():
			default:
				t.Error("got a context that is not done")
			}
			if lease.Context().Err() == nil {
				t.Error("got a context that is not done")
			}
			_ = lease.Release(t.Context())
		})
	}
	// The lease's context is not done when the next request's context is done.
	sim(t, "next request", func(t *testing.T) {
		l, _ := setup(t)
		request := &pooled{}
		request.use(t.Context())
		lease := acquire(t, request, l, "order:1")
		next, done := context.WithCancel(t.Context())
		request.use(next)
		ctx := lease.Context()
		done()
		time.Sleep(time.Second)
		if ctx.Err() != nil {
			t.Errorf("got a done context: %v", context.Cause(ctx))
		}
		release(t, lease)
	})
}

type pooled struct {
	of atomic.Pointer[context.Context]
}

func (p *pooled) use(ctx context.Context) { p.of.Store(&ctx) }

func (p *pooled) Done() <-chan struct{}       { return (*p.of.Load()).Done() }
func (p *pooled) Err() error                  { return (*p.of.Load()).Err() }
func (p *pooled) Value(key any) any           { return (*p.of.Load()).Value(key) }
func (p *pooled) Deadline() (time.Time, bool) { return (*p.of.Load()).Deadline() }

// TestDeadline_NotLate checks that a pause inside Deadline does not make the result
// later.
func TestDeadline_NotLate(t *testing.T) {
	t.Parallel()
	sim(t, "pause while it is computed", func(t *testing.T) {
		l, _ := setup(t)
		var paused atomic.Bool
		l.SetAsleep(func() time.Duration {
			if paused.Swap(false) {
				time.Sleep(20 * time.Second)
			}
			return 0
		})
		granted := time.Now()
		lease := acquire(t, t.Context(), l, "order:1", core.NoRenew())
		paused.Store(true)
		if d := lease.Deadline().Sub(granted); d > 30*time.Second {
			t.Errorf("got a trust of %v of a TTL of 30s", d)
		}
		paused.Store(false)
		release(t, lease)
	})
}

// TestLease_LossBesideAnother checks that an observer that blocks at a loss does not
// delay another loss. The other hold may be due for its first extension.
func TestLease_LossBesideAnother(t *testing.T) {
	t.Parallel()
	sim(t, "observer that blocks", func(t *testing.T) {
		until := make(chan struct{})
		store := newScripted(brief{memStore()})
		l := newLocker(t, store, core.WithObserver(stuck{until}))
		store.set(hang, opExtend)
		last := acquire(t, t.Context(), l, "order:1", core.TTL(100*time.Millisecond))
		time.Sleep(25 * time.Millisecond)
		leases := []*core.Lease{last}
		for i := range 10 { // one of them expires just before the last lease is due
			leases = append(leases, acquire(t, t.Context(), l, fmt.Sprintf("brief:%d", i)))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		select {
		case <-last.Context().Done():
		default:
			t.Error("got no loss a minute after the TTL of 100ms")
		}
		close(until)
		store.setAll(nil)
		for _, lease := range leases {
			_ = lease.Release(t.Context())
		}
	})
}

// brief is a store whose grants of some keys last only a little longer than the margin.
type brief struct{ core.Store }

func (s brief) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.Store.Acquire(ctx, c)
	if err == nil && strings.HasPrefix(c.Key, "brief:") {
		g.Valid = 3 * time.Millisecond
	}
	return g, err
}

type stuck struct{ until chan struct{} }

func (s stuck) Observe(_ context.Context, e core.Event) {
	if e.Kind == core.Lost && e.Name == "brief" {
		<-s.until
	}
}
