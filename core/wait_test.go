package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

func TestWait(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(*core.Locker, context.Context) (*core.Lease, error){
		"TryAcquire": func(l *core.Locker, ctx context.Context) (*core.Lease, error) {
			return l.TryAcquire(ctx, "order:1", core.Wait(time.Hour))
		},
		"Wait(0)": func(l *core.Locker, ctx context.Context) (*core.Lease, error) {
			return l.Acquire(ctx, "order:1", core.Wait(0))
		},
		"Retry(retry.None)": func(l *core.Locker, ctx context.Context) (*core.Lease, error) {
			return l.Acquire(ctx, "order:1", core.Retry(retry.None))
		},
	} {
		sim(t, name, func(t *testing.T) {
			store := newScripted(blind{memstore.New()})
			l := newLocker(t, store)
			holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
			time.Sleep(3 * time.Second)
			start := time.Now()
			_, err := try(l, t.Context())
			var busy *core.BusyError
			ok := errors.As(err, &busy)
			if !ok || time.Since(start) != 0 {
				t.Fatalf("got %v after %v, want a *BusyError at once", err, time.Since(start))
			}
			if busy.Key != "order:1" || busy.Name != "order" || busy.RetryAfter != 27*time.Second {
				t.Errorf("got %+v, want the holder's 27s", *busy)
			}
			if n := store.count(opAcquire); n != 1 {
				t.Errorf("%d questions, want 1", n)
			}
			release(t, holder)
		})
	}
	// Wait limits the wait of the head and of the callers behind it. After the wait,
	// their claims have no place at the store.
	sim(t, "head and others", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		start := time.Now()
		for range 3 {
			go func() {
				lease, err := l.Acquire(t.Context(), "order:1", core.Wait(12300*time.Millisecond), core.Fair())
				if !errors.As(err, new(*core.BusyError)) || lease != nil {
					t.Errorf("got %v, want a *BusyError", err)
				}
				if took := time.Since(start); took != 12300*time.Millisecond {
					t.Errorf("it gave up after %v", took)
				}
			}()
		}
		time.Sleep(12300 * time.Millisecond)
		synctest.Wait()
		release(t, holder)
		wantFree(t, store.inner, "order:1")
	})
	// A caller whose Wait has passed gets an error whose RetryAfter is the rest of the
	// holder's time.
	sim(t, "time of the holder", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1", core.NoRenew())
		time.Sleep(time.Second)
		_, err := l.Acquire(t.Context(), "order:1", core.Wait(1700*time.Millisecond))
		var busy *core.BusyError
		errors.As(err, &busy)
		if busy == nil || busy.RetryAfter != 27300*time.Millisecond {
			t.Errorf("got %#v, want 27.3s", err)
		}
		release(t, holder)
	})
	// Wait does not affect the lease.
	sim(t, "apart from the lease", func(t *testing.T) {
		l, _ := setup(t)
		lease := acquire(t, t.Context(), l, "order:1", core.Wait(time.Second))
		time.Sleep(time.Hour)
		wantHeldLease(t, lease)
		release(t, lease)
	})
}

// busyAtTheEnd is a store that answers busy only when the caller's context is done, as
// a quorum may.
type busyAtTheEnd struct{ store.Store }

func (s busyAtTheEnd) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	<-ctx.Done()
	return store.Grant{}, &store.BusyError{Key: c.Key}
}

func TestWaitingContext(t *testing.T) {
	t.Parallel()
	errBored := errors.New("bored")
	// If ctx is done during the wait, the error matches ErrBusy, the cause and ctx.Err.
	sim(t, "ctx done while waiting", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		start := time.Now()
		for i := range 2 { // the head, and a caller behind it
			go func() {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errBored)
				defer cancel()
				_, err := l.Acquire(ctx, "order:1")
				wantErr(t, err, core.ErrBusy, errBored, context.DeadlineExceeded)
				if time.Since(start) != 5*time.Second {
					t.Errorf("waiter %d gave up after %v", i, time.Since(start))
				}
			}()
			go func() {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(3*time.Second, func() { cancel(errBored) })
				_, err := l.Acquire(ctx, "order:1")
				wantErr(t, err, core.ErrBusy, errBored, context.Canceled)
				if time.Since(start) != 3*time.Second {
					t.Errorf("waiter %d gave up after %v", i, time.Since(start))
				}
			}()
			synctest.Wait()
		}
		time.Sleep(6 * time.Second)
		release(t, holder)
	})
	sim(t, "done while the store refuses", func(t *testing.T) {
		l, store := setup(t)
		store.set(refuse, opAcquire)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := l.Acquire(ctx, "order:1")
		wantErr(t, err, core.ErrUnavailable, context.DeadlineExceeded)
	})
	sim(t, "done while the store answers busy", func(t *testing.T) {
		l := newLocker(t, busyAtTheEnd{memstore.New()})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(errBored) })
		_, err := l.TryAcquire(ctx, "order:1")
		wantErr(t, err, core.ErrBusy, errBored, context.Canceled)
	})
	for name, cause := range map[string]error{
		"":                     nil,
		" with a reason":       errBored,
		" with lost lease":     core.ErrLost,
		" with failed acquire": core.ErrUnavailable,
		" with busy key":       &core.BusyError{Name: "other"},
		" with closed Locker":  core.ErrClosed,
	} {
		sim(t, "done context"+name, func(t *testing.T) {
			l, store := setup(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			_, err := l.Acquire(ctx, "order:1")
			_, errTry := l.TryAcquire(ctx, "order:1")
			_, errNested := l.Acquire(core.ContextWithOwner(ctx, "somebody"), "order:1")
			for _, err := range []error{err, errTry, errNested, l.Do(ctx, "order:1", unreached(t))} {
				wantErr(t, err, context.Canceled, context.Cause(ctx))
				if errors.Is(err, core.ErrBusy) && !errors.Is(cause, core.ErrBusy) {
					t.Errorf("got %v of a free key, want no ErrBusy", err)
				}
			}
			if n := store.count(); n != 0 {
				t.Errorf("%d calls were sent, want none", n)
			}
		})
	}
}

// TestWait_KeptKey covers hazard 40 of PROOF.md.
func TestWait_KeptKey(t *testing.T) {
	t.Parallel()
	for _, waiters := range []int{1, 30} {
		sim(t, fmt.Sprintf("%d waiting processes", waiters), func(t *testing.T) {
			there, store := setup(t)
			start := time.Now()
			holder := acquire(t, t.Context(), there, "order:1", core.KeepFor(1500*time.Millisecond))
			var all sync.WaitGroup
			first := make(chan time.Duration, waiters)
			for range waiters {
				l := newLocker(t, store)
				all.Go(func() {
					lease, err := l.Acquire(t.Context(), "order:1")
					if err != nil {
						t.Errorf("got %v, want a lease", err)
						return
					}
					first <- time.Since(start)
					release(t, lease)
				})
			}
			time.Sleep(500 * time.Millisecond)
			asked := store.count(opAcquire)
			release(t, holder)
			time.Sleep(999 * time.Millisecond)
			if n := store.count(opAcquire) - asked; n != 1 {
				t.Errorf("got %d questions while the key was kept, want 1", n)
			}
			if took := <-first; took < 1500*time.Millisecond || took > 1600*time.Millisecond {
				t.Errorf("got the first lease after %v, want it within 100ms of 1.5s", took)
			}
			all.Wait()
		})
	}
	// Without wake-ups a waiter gets the key by its first request after the kept time,
	// at most one pause of its policy later.
	for step, opts := range map[time.Duration][]core.AcquireOption{
		retry.LockWait.Max:     nil,
		100 * time.Millisecond: {core.Retry(every100ms)},
	} {
		sim(t, fmt.Sprintf("polling at most every %v", step), func(t *testing.T) {
			for held := range 50 {
				store := newScripted(blind{memstore.New()})
				holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1", core.KeepFor(300*time.Millisecond))
				end := time.Now().Add(300 * time.Millisecond)
				time.AfterFunc(time.Duration(held)*6*time.Millisecond, func() { release(t, holder) })
				lease := acquire(t, t.Context(), newLocker(t, store), "order:1", opts...)
				if late := time.Since(end); late < 0 || late > step {
					t.Errorf("got the lease %v after the kept time, want at most %v", late, step)
				}
				after := 0
				for _, c := range store.sent(opAcquire) {
					if !c.at.Before(end) {
						after++
					}
				}
				if after != 1 {
					t.Errorf("got %d requests after the kept time, want 1", after)
				}
				release(t, lease)
			}
		})
	}
	for _, revoked := range []bool{false, true} {
		sim(t, fmt.Sprintf("holder without renewal revoked %t", revoked), func(t *testing.T) {
			store := memstore.New()
			start := time.Now()
			holder := acquire(t, t.Context(), newLocker(t, store), "order:1", core.NoRenew(), core.TTL(2500*time.Millisecond))
			if revoked {
				time.AfterFunc(time.Second, func() {
					if err := store.Revoke(t.Context(), "order:1", holder.ID(), time.Millisecond); err != nil {
						t.Errorf("got %v, want nil", err)
					}
				})
			}
			lease := acquire(t, t.Context(), newLocker(t, store), "order:1")
			if took := time.Since(start); took < 2500*time.Millisecond || took > 2520*time.Millisecond {
				t.Errorf("got the lease after %v, want it soon after 2.5s", took)
			}
			release(t, lease)
			wantErr(t, holder.Release(t.Context()), core.ErrLost)
		})
	}
}

func unreached(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("fn ran")
		return nil
	}
}

var every100ms = retry.Policy{Initial: 100 * time.Millisecond, Max: 100 * time.Millisecond}

// TestPolling covers hazard 40 of PROOF.md.
func TestPolling(t *testing.T) {
	t.Parallel()
	// Retry sets the pauses between the requests to a store that cannot wake waiters.
	sim(t, "Retry sets the pace", func(t *testing.T) {
		store := newScripted(blind{memstore.New()})
		l := newLocker(t, store)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		start := time.Now()
		_, err := l.Acquire(t.Context(), "order:1", core.Retry(every100ms), core.Wait(550*time.Millisecond))
		wantErr(t, err, core.ErrBusy)
		asked := store.sent(opAcquire)
		if len(asked) != 6 {
			t.Errorf("%d questions, want 6", len(asked))
		}
		for i, c := range asked {
			if at := c.at.Sub(start); at != time.Duration(i)*100*time.Millisecond {
				t.Errorf("question %d came after %v", i, at)
			}
			if c.claims[0].Wait {
				t.Errorf("question %d asked for a wake-up, which would reach no waiter", i)
			}
		}
		release(t, holder)
	})
	// Only a fair claim has a place in the list of a store that cannot wake waiters. So
	// only its error has the number of waiters.
	for _, fair := range []bool{false, true} {
		sim(t, fmt.Sprintf("number of waiters fair %v", fair), func(t *testing.T) {
			opts, least, most := []core.AcquireOption{core.Wait(time.Minute)}, 0, 0
			if fair {
				// There are four claims, to a factor of two.
				opts, least, most = append(opts, core.Fair()), 2, 8
			}
			store := newScripted(blind{memstore.New()})
			holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
			for range 3 { // each Locker has its own queue, whose head asks
				go func() {
					_, err := newLocker(t, store).Acquire(t.Context(), "order:1", opts...)
					wantErr(t, err, core.ErrBusy)
				}()
			}
			time.Sleep(time.Second)
			_, err := newLocker(t, store).Acquire(t.Context(), "order:1", append(opts, core.Wait(time.Second))...)
			var busy *core.BusyError
			if !errors.As(err, &busy) || busy.Waiting < least || busy.Waiting > most {
				t.Errorf("got %v with %+v, want %d to %d waiting", err, busy, least, most)
			}
			time.Sleep(2 * time.Minute)
			release(t, holder)
		})
	}
	// After the last attempt of its policy, the acquire gives up.
	sim(t, "attempts used up", func(t *testing.T) {
		store := newScripted(blind{memstore.New()})
		l := newLocker(t, store)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		pace := every100ms
		pace.Attempts = 4
		start := time.Now()
		_, err := l.Acquire(t.Context(), "order:1", core.Retry(pace))
		var busy *core.BusyError
		if !errors.As(err, &busy) || busy.RetryAfter == 0 {
			t.Errorf("got %v, want a *BusyError with a hint", err)
		}
		if n, took := store.count(opAcquire), time.Since(start); n != 4 || took != 300*time.Millisecond {
			t.Errorf("%d questions in %v, want 4 in 300ms", n, took)
		}
		release(t, holder)
	})
	// By default, a waiter asks a store that cannot wake waiters one to two times a
	// second in the long run.
	sim(t, "default pace", func(t *testing.T) {
		store := newScripted(blind{memstore.New()})
		l := newLocker(t, store)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		_, err := l.Acquire(t.Context(), "order:1", core.Wait(10*time.Minute))
		wantErr(t, err, core.ErrBusy)
		if n := store.count(opAcquire); n < 600 || n > 1000 {
			t.Errorf("%d questions in ten minutes", n)
		}
		release(t, holder)
	})
	// After the death of the holder's process, a waiter gets the key soon after the
	// hold has expired.
	sim(t, "holder dies", func(t *testing.T) {
		for i := range 100 {
			l, store := setup(t)
			dead := stranger("order:1")
			dead.TTL = 3*time.Second + time.Duration(i)*7*time.Millisecond
			if _, err := store.inner.Acquire(t.Context(), dead); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			lease := acquire(t, t.Context(), l, "order:1")
			if took := time.Since(start); took < dead.TTL || took > dead.TTL+20*time.Millisecond {
				t.Errorf("served after %v, want soon after %v", took, dead.TTL)
			}
			release(t, lease)
		}
	})
	// Transient errors do not end the wait.
	sim(t, "passing errors", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		time.AfterFunc(10*time.Second, func() { holder.Release(t.Context()) })
		store.set(func(_ context.Context, n int, do func() error) error {
			if n%3 != 0 {
				return errBroken
			}
			return do()
		}, opAcquire)
		start := time.Now()
		lease := acquire(t, t.Context(), l, "order:1")
		if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("served after %v", took)
		}
		release(t, lease)
	})
}
