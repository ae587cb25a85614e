package once_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
)

// die begins a run of c in a process that cannot reach the store afterwards.
func die(t *testing.T, store *memstore.Store, c once.Call, opts ...once.Option) {
	t.Helper()
	cut := &flaky{Store: store, keys: make(map[string]bool)}
	var r runs
	_, err := newOnce(t, cut, opts...).Do(t.Context(), c, func(ctx context.Context) (once.Answer, error) {
		cut.set(true)
		return r.work("unheard")(ctx)
	})
	wantErr(t, err, core.ErrUnavailable)
	r.want(t, 1)
}

func TestAtMostOnce(t *testing.T) {
	t.Parallel()
	declined := errors.New("declined")
	// By default a run that died midway is run again.
	sim(t, "died by default", func(t *testing.T) {
		store := memstore.New()
		die(t, store, charge("1"))
		o := newOnce(t, store, wait(time.Hour))
		first(t, o, charge("1"), "receipt", 2)
		replayed(t, o, charge("1"), "receipt", 2)
	})
	// With AtMostOnce a run that died midway is not run again until the time of Retain
	// has passed.
	sim(t, "died midway", func(t *testing.T) {
		store := memstore.New()
		die(t, store, charge("1"), once.AtMostOnce())
		o := newOnce(t, store, once.AtMostOnce(), wait(time.Hour), once.Retain(time.Hour))
		for range 3 {
			refused(t, o, charge("1"), once.ErrIndeterminate)
		}
		refused(t, newOnce(t, store), charge("1"), once.ErrIndeterminate) // also without AtMostOnce
		other := charge("1")
		other.Fingerprint = nil
		refused(t, o, other, once.ErrMismatch)
		time.Sleep(time.Hour + time.Second)
		first(t, o, charge("1"), "a new call", 1)
	})
	// A run that died midway after earlier runs had failed is not run again.
	sim(t, "died after failures", func(t *testing.T) {
		store := memstore.New()
		o := newOnce(t, store, once.AtMostOnce(), wait(time.Hour))
		for range 2 {
			_, err := o.Do(t.Context(), charge("1"), new(runs).failing(declined))
			wantErr(t, err, declined)
		}
		die(t, store, charge("1"), once.AtMostOnce())
		for range 2 {
			refused(t, o, charge("1"), once.ErrIndeterminate)
		}
	})
	sim(t, "function failed", func(t *testing.T) {
		o := newOnce(t, memstore.New(), once.AtMostOnce())
		for attempt := 1; attempt <= 3; attempt++ {
			var r runs
			out, err := o.Do(t.Context(), charge("1"), r.failing(declined))
			if err != declined || out.Attempt != attempt || r.attempts[0] != attempt {
				t.Errorf("got %+v and %v, want fn's error of attempt %d", out, err, attempt)
			}
		}
		first(t, o, charge("1"), "receipt", 4)
	})
	// A run whose fn returns ErrIndeterminate is not run again.
	sim(t, "unknown to fn", func(t *testing.T) {
		store := memstore.New()
		strict, o := newOnce(t, store, once.AtMostOnce()), newOnce(t, store)
		timedOut := fmt.Errorf("gateway timed out: %w", once.ErrIndeterminate)
		for key, who := range map[string]*once.Once{"1": strict, "2": o} {
			if _, err := who.Do(t.Context(), charge(key), new(runs).failing(timedOut)); err != timedOut {
				t.Errorf("got %v, want fn's own error", err)
			}
		}
		refused(t, strict, charge("1"), once.ErrIndeterminate)
		// Without AtMostOnce, ErrIndeterminate is an error like any other.
		first(t, o, charge("2"), "receipt", 2)
	})
	sim(t, "function panicked", func(t *testing.T) {
		o := newOnce(t, memstore.New(), once.AtMostOnce())
		func() {
			defer func() { _ = recover() }()
			_, _ = o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) { panic("card reader on fire") })
		}()
		refused(t, o, charge("1"), once.ErrIndeterminate)
	})
	// A call with another request does not make a failed run look like a run that died
	// midway.
	sim(t, "another request", func(t *testing.T) {
		store := memstore.New()
		o := newOnce(t, store, once.AtMostOnce(), wait(time.Hour))
		other := charge("1")
		other.Fingerprint = []byte("1000 EUR")
		_, _ = o.Do(t.Context(), charge("1"), new(runs).failing(declined))
		refused(t, o, other, once.ErrMismatch)
		refused(t, o, other, once.ErrMismatch)
		first(t, o, charge("1"), "receipt", 2)

		died := charge("2")
		die(t, store, died)
		other.Key = "2"
		refused(t, o, other, once.ErrMismatch)
		refused(t, o, died, once.ErrIndeterminate) // and a run that died does not look failed
	})
	sim(t, "policy of the finder", func(t *testing.T) {
		store := memstore.New()
		die(t, store, charge("1"), once.AtMostOnce())
		die(t, store, charge("2"))
		first(t, newOnce(t, store, wait(time.Hour)), charge("1"), "receipt", 2)
		refused(t, newOnce(t, store, wait(time.Hour), once.AtMostOnce()), charge("2"), once.ErrIndeterminate)
	})
	// If Do cannot save the state indeterminate, it still returns ErrIndeterminate, and
	// so does the next Do.
	sim(t, "indeterminate and unsaved", func(t *testing.T) {
		store := memstore.New()
		die(t, store, charge("1"))
		time.Sleep(time.Hour)
		deaf := &flaky{Store: store, keys: make(map[string]bool)}
		half := acquireOnly{deaf}
		refused(t, newOnce(t, half, once.AtMostOnce()), charge("1"), once.ErrIndeterminate)
		refused(t, newOnce(t, store, once.AtMostOnce(), wait(time.Hour)), charge("1"), once.ErrIndeterminate)
	})
}

// acquireOnly is a store that goes down after each grant.
type acquireOnly struct{ *flaky }

func (s acquireOnly) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	g, err := s.flaky.Acquire(ctx, c)
	if err == nil {
		s.set(true)
	}
	return g, err
}

func TestLife(t *testing.T) {
	t.Parallel()
	// A call is in progress only as long as its lease is held, even if answers are
	// stored for longer.
	sim(t, "answers stored for long", func(t *testing.T) {
		store := memstore.New()
		long := once.Retain(30 * 24 * time.Hour)
		start := time.Now()
		die(t, store, charge("1"), long, lasting(10*time.Second))
		o := newOnce(t, store, long, wait(time.Hour))
		first(t, o, charge("1"), "receipt", 2)
		if d := time.Since(start); d > time.Minute {
			t.Errorf("it was in progress for %v after its process died", d)
		}
		time.Sleep(29 * 24 * time.Hour)
		replayed(t, o, charge("1"), "receipt", 2)
		time.Sleep(2 * 24 * time.Hour)
		first(t, o, charge("1"), "a new call", 1)
	})
	// A call is in progress as long as its run takes, even if answers are stored for a
	// shorter time.
	sim(t, "answers stored for a moment", func(t *testing.T) {
		store := memstore.New()
		brief := once.Retain(time.Second)
		o := newOnce(t, store, brief)
		done := make(chan error, 1)
		go func() {
			_, err := o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) {
				time.Sleep(time.Hour)
				return once.Answer{Value: []byte("receipt")}, nil
			})
			done <- err
		}()
		for range 50 {
			time.Sleep(time.Minute)
			refused(t, newOnce(t, store, brief), charge("1"), once.ErrInProgress)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		replayed(t, o, charge("1"), "receipt", 1)
		time.Sleep(2 * time.Second)
		first(t, o, charge("1"), "a new call", 1)
	})
	// A run that took longer than the Retain of answers, and then died, is not
	// forgotten.
	sim(t, "long run that died", func(t *testing.T) {
		store := memstore.New()
		brief := once.Retain(time.Second)
		cut := &flaky{Store: store, keys: make(map[string]bool)}
		_, err := newOnce(t, cut, brief).Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) {
			time.Sleep(time.Hour)
			cut.set(true)
			return once.Answer{}, nil
		})
		wantErr(t, err, core.ErrUnavailable)
		other := charge("1")
		other.Fingerprint = nil
		refused(t, newOnce(t, store, brief, wait(time.Hour)), other, once.ErrMismatch)
		refused(t, newOnce(t, store, brief, wait(time.Hour), once.AtMostOnce()), charge("1"), once.ErrIndeterminate)
	})
	// Each failure of a run begins the time of Retain again.
	sim(t, "failed run", func(t *testing.T) {
		o := newOnce(t, memstore.New(), once.Retain(time.Minute))
		other := charge("1")
		other.Fingerprint = nil
		_, _ = o.Do(t.Context(), charge("1"), new(runs).failing(errors.New("declined")))
		time.Sleep(50 * time.Second)
		refused(t, o, other, once.ErrMismatch)
		_, _ = o.Do(t.Context(), charge("1"), new(runs).failing(errors.New("declined")))
		time.Sleep(50 * time.Second)
		refused(t, o, other, once.ErrMismatch)
		first(t, o, charge("1"), "receipt", 3)
		time.Sleep(61 * time.Second)
		first(t, o, other, "a new call", 1)
	})
}
