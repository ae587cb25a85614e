package once_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
)

// TestUnknownBegin checks a run that the store has begun, although the caller got no
// answer to the begin and its retries. The run is undone in the background (hazard 8).
// fn was not called. So the run does not count as an attempt, and the call is not
// indeterminate.
func TestUnknownBegin(t *testing.T) {
	t.Parallel()
	policies := map[string][]once.Option{"1": nil, "2": {once.AtMostOnce()}}
	brief := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	for what, ctx := range map[string]func(t *testing.T) context.Context{
		"fails": (*testing.T).Context, "times out": brief,
	} {
		sim(t, "begin "+what, func(t *testing.T) {
			store := memstore.New()
			mute := &muteGrants{flaky: &flaky{Store: store, keys: make(map[string]bool)}, hang: what != "fails"}
			for key, opts := range policies {
				unheard(t, ctx(t), newOnce(t, mute, opts...), charge(key))
			}
			time.Sleep(time.Second)
			start := time.Now()
			for key, opts := range policies {
				first(t, newOnce(t, store, opts...), charge(key), "receipt", 1)
			}
			if time.Since(start) > 0 {
				t.Error("the keys were not free at once")
			}
		})
		sim(t, "begin "+what+" in an outage", func(t *testing.T) {
			store := memstore.New()
			mute := &muteGrants{flaky: &flaky{Store: store, keys: make(map[string]bool)}, hang: what != "fails", last: true}
			for key, opts := range policies {
				unheard(t, ctx(t), newOnce(t, mute, opts...), charge(key))
				mute.set(false)
			}
			mute.set(true)
			time.Sleep(5 * time.Minute)
			mute.set(false)
			time.Sleep(time.Second)
			for key, opts := range policies {
				first(t, newOnce(t, store, opts...), charge(key), "receipt", 1)
			}
		})
		sim(t, "begin "+what+" after failures", func(t *testing.T) {
			store, declined := memstore.New(), errors.New("declined")
			mute := &muteGrants{flaky: &flaky{Store: store, keys: make(map[string]bool)}, hang: what != "fails"}
			for key, opts := range policies {
				_, err := newOnce(t, store, opts...).Do(t.Context(), charge(key), new(runs).failing(declined))
				wantErr(t, err, declined)
				for range 3 {
					unheard(t, ctx(t), newOnce(t, mute, opts...), charge(key))
					time.Sleep(time.Second)
				}
				first(t, newOnce(t, store, opts...), charge(key), "receipt", 2)
			}
		})
	}
	// A begin of another request does not count as an attempt either, although an outage
	// delays its undo.
	sim(t, "another request", func(t *testing.T) {
		store := memstore.New()
		strict := newOnce(t, store, once.AtMostOnce())
		_, _ = strict.Do(t.Context(), charge("1"), new(runs).failing(errors.New("declined")))
		other := charge("1")
		other.Fingerprint = []byte("1000 EUR")
		down := &flaky{Store: store, keys: make(map[string]bool)}
		refused(t, newOnce(t, acquireOnly{down}, once.AtMostOnce()), other, once.ErrMismatch)
		time.Sleep(time.Minute) // the lease of the begin has expired
		down.set(false)
		time.Sleep(time.Second)
		first(t, strict, charge("1"), "receipt", 2)
	})
}

// unheard fails the test unless Do with ctx fails with ErrUnavailable and runs nothing.
func unheard(t *testing.T, ctx context.Context, o *once.Once, c once.Call) {
	t.Helper()
	var r runs
	_, err := o.Do(ctx, c, r.work("not to be run"))
	wantErr(t, err, core.ErrUnavailable)
	r.want(t, 0)
}

// muteGrants is a store whose grants do not arrive. The caller gets an error or, with
// hang, no answer. With last, the store is down after the grant.
type muteGrants struct {
	*flaky
	hang, last bool
}

func (s *muteGrants) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if _, err := s.flaky.Acquire(ctx, c); err != nil {
		return store.Grant{}, err
	}
	if s.last {
		s.set(true)
	}
	if s.hang {
		<-ctx.Done()
	}
	return store.Grant{}, errDown
}
