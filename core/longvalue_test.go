package core_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
)

func TestFinishLong(t *testing.T) {
	t.Parallel()
	const long = 3 << 20
	// refusing returns a fault that applies f to releases with a value that is longer
	// than limit.
	refusing := func(limit int, store *scripted, f fault) fault {
		return func(ctx context.Context, n int, do func() error) error {
			calls := store.sent(opRelease)
			if r := calls[len(calls)-1].claims[0].Record; r != nil && len(r.Value) > limit {
				return f(ctx, n, do)
			}
			return do()
		}
	}
	sent := func(store *scripted) (values, bytes int) {
		for _, c := range store.sent(opRelease) {
			if r := c.claims[0].Record; r != nil && len(r.Value) > 1000 {
				values++
				bytes += len(r.Value)
			}
		}
		return values, bytes
	}
	for _, c := range []struct {
		name   string
		f      fault
		values int // the maximum number of times that the value is sent
	}{
		{"connection closed", loseRequest, 1},
		{"no answer", hang, 1},
		{"value refused", refuse, 3},
	} {
		sim(t, c.name, func(t *testing.T) {
			l, store := setup(t)
			lease := begin(t, l, "pay:1", 1)
			store.set(refusing(1<<20, store, c.f), opRelease)
			err := lease.FinishLong(t.Context(), finished(strings.Repeat("x", long), 1), finished("too long", 1))
			wantErr(t, err, core.ErrUnavailable)
			synctest.Wait()
			time.Sleep(time.Minute)
			if values, _ := sent(store); values > c.values {
				t.Errorf("got %d long values, want at most %d", values, c.values)
			}
			wantAnswer(t, l, "pay:1", "too long")
			wantFree(t, store.inner, "pay:1")
		})
	}
	// A store can refuse a shorter value too, even one that is sent in the background.
	for _, c := range []struct {
		name   string
		outage int // the number of calls without an answer before the refusal
	}{
		{"short value refused", 0},
		{"short value refused after an outage", 4},
	} {
		sim(t, c.name, func(t *testing.T) {
			seen := &recorder{}
			l, store := setup(t, core.WithObserver(seen))
			lease := begin(t, l, "pay:1", 1)
			store.set(func(ctx context.Context, n int, do func() error) error {
				if n <= c.outage {
					return errBroken
				}
				return refusing(1000, store, func(context.Context, int, func() error) error {
					return fmt.Errorf("the value is too long: %w", core.ErrInvalid)
				})(ctx, n, do)
			}, opRelease)
			err := lease.FinishLong(t.Context(), finished(strings.Repeat("x", 300<<10), 1), finished("too long", 1))
			wantErr(t, err, core.ErrUnavailable)
			wantNot(t, err, core.ErrInvalid)
			time.Sleep(time.Second)
			wantAnswer(t, l, "pay:1", "too long")
			wantFree(t, store.inner, "pay:1")
			if n := len(seen.all(core.CleanedUp)); n != min(c.outage, 1) {
				t.Errorf("got %d clean-ups, want %d", n, min(c.outage, 1))
			}
		})
	}
	// A refused value is not sent again, even if its substitute gets no answer at first.
	sim(t, "refused before a lost substitute", func(t *testing.T) {
		l, store := setup(t)
		lease := begin(t, l, "pay:1", 1)
		refused, substitutes := 0, 0
		store.set(func(ctx context.Context, n int, do func() error) error {
			if n <= 4 {
				return errBroken
			}
			return refusing(1000, store, func(context.Context, int, func() error) error {
				refused++
				return core.ErrInvalid
			})(ctx, n, func() error {
				if substitutes++; substitutes <= 3 {
					return errBroken
				}
				return do()
			})
		}, opRelease)
		err := lease.FinishLong(t.Context(), finished(strings.Repeat("x", 300<<10), 1), finished("too long", 1))
		wantErr(t, err, core.ErrUnavailable)
		time.Sleep(5 * time.Second)
		wantAnswer(t, l, "pay:1", "too long")
		if refused != 1 || substitutes < 4 {
			t.Errorf("got %d refused values and %d substitutes, want one refused value", refused, substitutes)
		}
	})
	// A refused value was not saved. So if the substitute is not saved either, another
	// run has begun.
	sim(t, "refused after another run", func(t *testing.T) {
		l, store := setup(t)
		lease := begin(t, l, "pay:1", 1)
		store.set(refuse, opExtend)
		lossTime(t, lease)
		time.Sleep(10 * time.Second) // until the hold has expired
		other := begin(t, newLocker(t, store.inner), "pay:1", 2)
		store.set(first(1, func(context.Context, int, func() error) error { return core.ErrInvalid }), opRelease)
		err := lease.FinishLong(t.Context(), finished(strings.Repeat("x", long), 1), finished("too long", 1))
		wantErr(t, err, core.ErrLost)
		wantNot(t, err, core.ErrUnavailable)
		release(t, other)
	})
	// Without a substitute, the clean-up reports the refused value.
	sim(t, "refused without a substitute", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		lease := begin(t, l, "pay:1", 1)
		store.set(func(context.Context, int, func() error) error { return core.ErrInvalid }, opRelease)
		wantErr(t, lease.Finish(t.Context(), finished("refused", 1)), core.ErrUnavailable)
		time.Sleep(time.Second)
		events := seen.all(core.CleanedUp)
		if len(events) != 1 {
			t.Fatalf("got %d clean-ups, want 1", len(events))
		}
		wantErr(t, events[0].Err, core.ErrInvalid)
	})
	sim(t, "reply lost", func(t *testing.T) {
		l, store := setup(t)
		lease := begin(t, l, "pay:1", 1)
		store.set(first(1, loseReply), opRelease)
		value := strings.Repeat("x", long)
		wantErr(t, lease.FinishLong(t.Context(), finished(value, 1), finished("too long", 1)), core.ErrUnavailable)
		wantAnswer(t, l, "pay:1", value) // the value was stored, and stays
	})
	sim(t, "value stored", func(t *testing.T) {
		l, _ := setup(t)
		lease := begin(t, l, "pay:1", 1)
		value := strings.Repeat("x", long)
		if err := lease.FinishLong(t.Context(), finished(value, 1), finished("too long", 1)); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		wantAnswer(t, l, "pay:1", value)
	})
	sim(t, "pause that grows in an outage", func(t *testing.T) {
		l, store := setup(t)
		lease := begin(t, l, "pay:1", 1)
		store.set(refuse, opRelease)
		value := strings.Repeat("x", 2000)
		wantErr(t, lease.FinishLong(t.Context(), finished(value, 1), finished("too long", 1)), core.ErrUnavailable)
		time.Sleep(time.Minute)
		// The pauses are 100 ms, 200 ms and so on, up to 5 s.
		if values, _ := sent(store); values < 10 || values > 20 {
			t.Errorf("got %d values in a minute, want 10 to 20", values)
		}
		store.set(nil, opRelease)
		time.Sleep(10 * time.Second)
		wantAnswer(t, l, "pay:1", value)
	})
	sim(t, "shorter value in an outage", func(t *testing.T) {
		l, store := setup(t)
		lease := begin(t, l, "pay:1", 1)
		store.set(refuse, opRelease)
		err := lease.FinishLong(t.Context(), finished(strings.Repeat("x", 500<<10), 1), finished("too long", 1))
		wantErr(t, err, core.ErrUnavailable)
		time.Sleep(9 * time.Minute)
		if values, bytes := sent(store); values < 2 || bytes > 11<<20 {
			t.Errorf("got %d values of %d bytes, want some and at most 11 MiB", values, bytes)
		}
		store.set(nil, opRelease)
		time.Sleep(10 * time.Second)
		wantAnswer(t, l, "pay:1", "too long")
	})
}
