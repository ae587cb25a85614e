package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
)

// TestUnknownOutcome covers hazards 7, 8 and 9 of PROOF.md.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{
		"error": loseReply, "hanging call": hangAfter, "lost request": loseRequest,
		"late request": late(7 * time.Second),
	} {
		sim(t, "asked again "+name, func(t *testing.T) {
			l, store := setup(t)
			for faults := range 3 {
				store.forget()
				store.set(first(faults, f), opAcquire)
				lease := acquire(t, t.Context(), l, "order:1")
				asked := store.sent(opAcquire)
				if len(asked) != faults+1 {
					t.Errorf("asked %d times, want %d", len(asked), faults+1)
				}
				for _, c := range asked {
					if c.claims[0].Lease != asked[0].claims[0].Lease || c.claims[0].Owner != asked[0].claims[0].Owner {
						t.Error("the claim was asked again under another name")
					}
				}
				wantHeld(t, store.inner, "order:1")
				release(t, lease)
				time.Sleep(10 * time.Second)
				wantFree(t, store.inner, "order:1")
			}
		})
	}
	// The Acquire of a canceled caller returns at once, and its claim is released soon
	// after that.
	sim(t, "canceled while the store hangs", func(t *testing.T) {
		for name, f := range map[string]fault{"hang": hang, "hang after": hangAfter, "late": late(50 * time.Millisecond)} {
			for range tally.AllTrials(50) {
				seen := &recorder{}
				l, store := setup(t, core.WithObserver(seen))
				store.set(f, opAcquire)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond+rand.N(5*time.Second))
				until, _ := ctx.Deadline()
				_, err := l.Acquire(ctx, "order:1")
				wantErr(t, err, core.ErrUnavailable, context.DeadlineExceeded)
				wantNot(t, err, core.ErrBusy)
				if d := time.Since(until); d != 0 {
					t.Fatalf("%s: got a return %v late", name, d)
				}
				cancel()
				time.Sleep(200 * time.Millisecond)
				wantFree(t, store.inner, "order:1")
				if events := seen.all(core.CleanedUp); len(events) != 1 || events[0].Err != nil || events[0].Name != "order" {
					t.Fatalf("%s: got clean-ups %+v, want one without error", name, events)
				}
			}
		}
	})
	for name, cause := range map[string]error{
		"busy": &core.BusyError{Name: "other"}, "lost": core.ErrLost, "invalid": core.ErrInvalid,
		"unsupported": core.ErrUnsupported, "unavailable": core.ErrUnavailable, "closed": core.ErrClosed,
	} {
		sim(t, "cause of context "+name, func(t *testing.T) {
			l, store := setup(t)
			store.set(hangAfter, opAcquire) // which returns the context's cause
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			_, err := l.Acquire(ctx, "order:1")
			wantErr(t, err, core.ErrUnavailable, context.Canceled, cause)
			time.Sleep(10 * time.Millisecond)
			wantFree(t, store.inner, "order:1")
		})
	}
	sim(t, "store answers again", func(t *testing.T) {
		for _, ttl := range []time.Duration{time.Second, 30 * time.Second} {
			for range tally.AllTrials(50) {
				l, store := setup(t)
				store.set(hangAfter, opAcquire)
				store.set(hang, opRelease)
				ctx, cancel := context.WithTimeout(t.Context(), ttl/100)
				_, err := l.Acquire(ctx, "order:1", core.TTL(ttl))
				wantErr(t, err, core.ErrUnavailable)
				cancel()
				time.Sleep(rand.N(ttl / 2))
				wantHeld(t, store.inner, "order:1")
				store.setAll(nil)
				// The limit is one hanging attempt, of at most a sixth of the TTL, and
				// a pause.
				if d := freeAfter(store.inner, "order:1"); d > min(ttl/6, 2*time.Second)+110*time.Millisecond {
					t.Fatalf("TTL %v: free %v after the store answered again", ttl, d)
				}
			}
		}
	})
	sim(t, "thousands of claims", func(t *testing.T) {
		claims := tally.AllTrials(2000)
		l, store := setup(t)
		store.set(hangAfter, opAcquire)
		store.set(hang, opRelease)
		var wg sync.WaitGroup
		for i := range claims {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := l.Acquire(ctx, fmt.Sprint("order:", i))
				wantErr(t, err, core.ErrUnavailable)
			})
		}
		wg.Wait()
		time.Sleep(10 * time.Second)
		store.setAll(slow(time.Millisecond, time.Millisecond))
		time.Sleep(2700 * time.Millisecond) // one hanging attempt of two seconds
		for i := range claims {
			wantFree(t, store.inner, fmt.Sprint("order:", i))
		}
	})
	// The clean-up tries to release a claim for the claim's TTL and for at least a
	// minute, with pauses. It then reports that it gave up.
	sim(t, "gives up after a minute", func(t *testing.T) {
		for _, f := range []fault{loseRequest, refuse, hang} {
			seen := &recorder{}
			l, store := setup(t, core.WithObserver(seen))
			store.set(first(1, hangAfter), opAcquire)
			store.set(f, opRelease)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := l.Acquire(ctx, "order:1")
			wantErr(t, err, core.ErrUnavailable)
			cancel()
			time.Sleep(59 * time.Second)
			if events := seen.all(core.CleanedUp); len(events) != 0 {
				t.Fatalf("got %+v before the minute had passed", events)
			}
			before := store.count(opRelease)
			if before < 27 || before > 601 {
				t.Errorf("%d attempts in 59 seconds", before)
			}
			time.Sleep(5 * time.Second)
			events := seen.all(core.CleanedUp)
			if len(events) != 1 || events[0].Err == nil {
				t.Fatalf("got %+v, want one with an error", events)
			}
			wantNot(t, events[0].Err, core.ErrLost)
			n := store.count(opRelease)
			time.Sleep(time.Minute)
			if store.count(opRelease) != n || l.Left() != "" {
				t.Errorf("it goes on: %s", l.Left())
			}
			store.setAll(nil)
			wantFree(t, store.inner, "order:1")
		}
	})
	// If the store reports that it has changed nothing (ErrUnavailable), there is no
	// clean-up.
	sim(t, "nothing was done", func(t *testing.T) {
		l, store := setup(t)
		store.set(refuse, opAcquire)
		start := time.Now()
		_, err := l.Acquire(t.Context(), "order:1")
		wantErr(t, err, core.ErrUnavailable)
		wantNot(t, err, core.ErrBusy)
		if n := store.count(opAcquire); n != 3 || time.Since(start) > 400*time.Millisecond {
			t.Errorf("asked %d times in %v, want three times in passing", n, time.Since(start))
		}
		time.Sleep(time.Minute)
		if n := store.count(opRelease); n != 0 {
			t.Errorf("%d releases, want none", n)
		}
	})
	for name, answer := range map[string]error{
		"busy": core.ErrBusy, "unsupported": core.ErrUnsupported, "invalid": core.ErrInvalid, "lost": core.ErrLost,
	} {
		sim(t, "final answer "+name, func(t *testing.T) {
			l, store := setup(t)
			store.set(func(context.Context, int, func() error) error { return answer }, opAcquire)
			_, err := l.TryAcquire(t.Context(), "order:1")
			if want := answer; answer == core.ErrLost {
				// No hold was granted, so none can be lost.
				wantErr(t, err, core.ErrUnavailable)
				wantNot(t, err, want)
			} else {
				wantErr(t, err, want)
			}
			time.Sleep(time.Second)
			if got := store.count(); got != 1 {
				t.Errorf("%d calls, want one", got)
			}
		})
	}
	// Requests of an acquire that arrive after the release of its lease are refused.
	sim(t, "attempts after the release", func(t *testing.T) {
		for i := range tally.AllTrials(300) {
			l, store := setup(t)
			store.set(func(ctx context.Context, n int, do func() error) error {
				if n < 3 {
					return late(2*time.Second+rand.N(3*time.Second))(ctx, n, do)
				}
				return do()
			}, opAcquire)
			store.set(jitter(100*time.Millisecond), opRelease)
			lease := acquire(t, t.Context(), l, "order:1")
			time.Sleep(rand.N(2 * time.Second))
			release(t, lease)
			time.Sleep(8 * time.Second) // until the last attempt has arrived
			synctest.Wait()
			if !isFree(store.inner, "order:1") {
				t.Fatalf("round %d: a straggler holds the key", i)
			}
		}
	})
	// Requests that arrive after the clean-up of their claim are refused.
	sim(t, "attempts after the clean-up", func(t *testing.T) {
		for i := range tally.AllTrials(300) {
			l, store := setup(t)
			store.set(late(rand.N(3*time.Second)), opAcquire)
			store.set(jitter(100*time.Millisecond), opRelease)
			_, err := l.Acquire(t.Context(), "order:1")
			wantErr(t, err, core.ErrUnavailable)
			time.Sleep(6 * time.Second)
			if !isFree(store.inner, "order:1") {
				t.Fatalf("round %d: a straggler holds the key", i)
			}
		}
	})
}

// TestAnswerAfterUnanswered checks an acquire in which the store answers a later
// request, after an earlier request without an answer. The answer determines the error,
// even if ctx is done when the answer arrives. It does not end the clean-up of the
// earlier request.
func TestAnswerAfterUnanswered(t *testing.T) {
	t.Parallel()
	errBored := errors.New("bored")
	for name, earlier := range map[string]fault{
		"no earlier request": nil, "refused": refuse, "lost request": loseRequest, "lost reply": loseReply,
	} {
		// acquireDone acquires order:1. The store gives the answer to the request
		// after the earlier one, and ctx is then done already.
		acquireDone := func(t *testing.T, l *core.Locker, s *scripted, answer error) error {
			t.Helper()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			final := func(context.Context, int, func() error) error {
				cancel(errBored)
				return answer
			}
			s.set(final, opAcquire)
			if earlier != nil {
				s.set(func(ctx context.Context, n int, do func() error) error {
					if n == 1 {
						return earlier(ctx, n, do)
					}
					return final(ctx, n, do)
				}, opAcquire)
			}
			_, err := l.Acquire(ctx, "order:1")
			wantErr(t, err, errBored, context.Canceled)
			s.set(nil, opAcquire)
			return err
		}
		for class, answer := range map[string]error{"unsupported": core.ErrUnsupported, "invalid": core.ErrInvalid} {
			sim(t, name+" then "+class, func(t *testing.T) {
				l, store := setup(t)
				err := acquireDone(t, l, store, fmt.Errorf("memstore: acquire: %w", answer))
				wantErr(t, err, answer)
				wantNot(t, err, core.ErrUnavailable)
				time.Sleep(time.Second)
				wantFree(t, store.inner, "order:1")
			})
		}
		// No hold was granted, so none can be lost.
		sim(t, name+" then lost", func(t *testing.T) {
			l, store := setup(t)
			err := acquireDone(t, l, store, core.ErrLost)
			wantErr(t, err, core.ErrUnavailable)
			wantNot(t, err, core.ErrLost)
			time.Sleep(time.Second)
			wantFree(t, store.inner, "order:1")
		})
	}
	// The earlier request can still arrive. So the clean-up of the claim leaves a
	// tombstone, although the store has answered the later request.
	sim(t, "late request after a busy answer", func(t *testing.T) {
		for _, wait := range []time.Duration{0, time.Second} {
			seen := &recorder{}
			l, store := setup(t, core.WithObserver(seen))
			holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
			store.set(first(1, late(7*time.Second)), opAcquire)
			_, err := l.Acquire(t.Context(), "order:1", core.Wait(wait))
			wantErr(t, err, core.ErrBusy)
			wantNot(t, err, core.ErrUnavailable)
			release(t, holder)
			time.Sleep(10 * time.Second) // until the late request has arrived
			wantFree(t, store.inner, "order:1")
			if events := seen.all(core.CleanedUp); len(events) != 1 || events[0].Err != nil {
				t.Errorf("got clean-ups %+v, want one without error", events)
			}
		}
	})
}

// errList is an error of a type that cannot be compared.
type errList []error

func (e errList) Error() string { return errors.Join(e...).Error() }

// TestAcquire_UncomparableCause covers a cause that cannot be compared.
func TestAcquire_UncomparableCause(t *testing.T) {
	t.Parallel()
	sim(t, "canceled between two requests", func(t *testing.T) {
		for _, f := range []fault{refuse, loseRequest} {
			l, store := setup(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			store.set(func(ctx context.Context, n int, do func() error) error {
				time.AfterFunc(time.Nanosecond, func() { cancel(errList{errBroken}) })
				return f(ctx, n, do)
			}, opAcquire)
			_, err := l.Acquire(ctx, "order:1")
			wantErr(t, err, core.ErrUnavailable, context.Canceled)
			if got := (errList{}); !errors.As(err, &got) {
				t.Errorf("got %v, want an error that matches the cause", err)
			}
			store.set(nil, opAcquire)
		}
	})
}
