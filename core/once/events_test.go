package once_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

// hearing returns a Once, and a function that returns the events Ran, Replayed and
// Refused since the last call of that function.
func hearing(t *testing.T, store core.Store, opts ...once.Option) (*once.Once, func() []core.Event) {
	t.Helper()
	events := make(chan core.Event, 1000)
	locks, err := core.New(store, core.WithObserver(collect(events)))
	if err != nil {
		t.Fatal(err)
	}
	o, err := once.New(locks, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return o, func() (some []core.Event) {
		for {
			select {
			case e := <-events:
				if e.Kind == core.Ran || e.Kind == core.Replayed || e.Kind == core.Refused {
					some = append(some, e)
				}
			default:
				return some
			}
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	private := errors.New("card 4711 was declined")
	fails := func(context.Context) (once.Answer, error) { return once.Answer{}, private }
	works := func(context.Context) (once.Answer, error) {
		time.Sleep(time.Second)
		return once.Answer{Value: []byte("receipt")}, nil
	}
	anything := errors.New("any error")
	// one returns the only event. It fails the test unless the event has this kind,
	// attempt and error.
	one := func(t *testing.T, events []core.Event, kind core.Kind, attempt int, err error) core.Event {
		t.Helper()
		if len(events) != 1 {
			t.Fatalf("got %d events: %+v", len(events), events)
		}
		e := events[0]
		if e.Kind != kind || e.Attempt != attempt || e.Mode != core.ModeRun || e.Name != charge("1").Name || err != anything && !errors.Is(e.Err, err) || err == nil && e.Err != nil {
			t.Errorf("got %v, attempt %d, %v %s: %v; want %v, attempt %d, %v", e.Kind, e.Attempt, e.Mode, e.Name, e.Err, kind, attempt, err)
		}
		if errors.Is(e.Err, private) || e.Err != nil && strings.Contains(e.Err.Error(), "4711") {
			t.Errorf("got the error of the work: %v", e.Err)
		}
		return e
	}
	// Each call has one event: Ran, Replayed or Refused. The event of a refusal or of a
	// failed run has the reason.
	sim(t, "one event per call", func(t *testing.T) {
		o, events := hearing(t, memstore.New())
		o.Do(t.Context(), charge("1"), fails)
		if e := one(t, events(), core.Ran, 1, anything); e.Err == nil {
			t.Error("a run that failed has no Err")
		}
		o.Do(t.Context(), charge("1"), works)
		if e := one(t, events(), core.Ran, 2, nil); e.Held != time.Second || e.Wait != 0 || len(e.Hold()) != 11 {
			t.Errorf("got %+v", e)
		}
		o.Do(t.Context(), charge("1"), works)
		one(t, events(), core.Replayed, 2, nil)
		other := charge("1")
		other.Fingerprint = []byte("another request")
		o.Do(t.Context(), other, works)
		one(t, events(), core.Refused, 0, once.ErrMismatch)
		o.Do(t.Context(), charge("2"), func(context.Context) (once.Answer, error) { return once.Answer{Unreplayable: true}, nil })
		one(t, events(), core.Ran, 1, nil)
		o.Do(t.Context(), charge("2"), works)
		one(t, events(), core.Refused, 1, once.ErrUnreplayable)
		o.Do(t.Context(), charge("3"), func(context.Context) (once.Answer, error) { return once.Answer{}, once.Withdraw(private) })
		if e := one(t, events(), core.Refused, 0, anything); e.Err == nil || e.Held != 0 {
			t.Errorf("got %+v", e)
		}
		if _, err := o.Do(t.Context(), once.Call{Name: "charge"}, works); !errors.Is(err, core.ErrInvalid) || len(events()) != 0 {
			t.Error("got an event of a call that is not allowed")
		}
	})
	// With AtMostOnce, a run that panicked is not run again.
	sim(t, "run that panics", func(t *testing.T) {
		o, events := hearing(t, memstore.New(), once.AtMostOnce())
		func() {
			defer func() { _ = recover() }()
			o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) { panic("card 4711") })
		}()
		if e := one(t, events(), core.Ran, 1, anything); e.Err == nil {
			t.Error("a run that panicked has no Err")
		}
		o.Do(t.Context(), charge("1"), works)
		one(t, events(), core.Refused, 1, once.ErrIndeterminate)
	})
	// A caller that finds a run in progress is refused or gets the answer. Its event is
	// contended and has no key.
	sim(t, "run in progress", func(t *testing.T) {
		o, events := hearing(t, memstore.New())
		go o.Do(t.Context(), charge("1"), works)
		synctest.Wait()
		o.Do(t.Context(), charge("1"), works)
		e := one(t, events(), core.Refused, 0, once.ErrInProgress)
		var busy *core.BusyError
		ok := errors.As(e.Err, &busy)
		if !e.Contended || !ok || busy.Key != "" || strings.Contains(fmt.Sprintf("%+v %#v", e, e), core.Key("once", charge("1").Name, "")) {
			t.Errorf("got %#v", e)
		}
		o.With(core.Wait(time.Minute)).Do(t.Context(), charge("1"), works)
		for _, e := range events() {
			if e.Kind == core.Replayed && (!e.Contended || e.Wait != time.Second || e.Attempt != 1) {
				t.Errorf("got %+v", e)
			}
		}
	})
	// The event of an answer that was not saved has the reason.
	sim(t, "store that is down", func(t *testing.T) {
		store := newFlaky()
		o, events := hearing(t, store)
		o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) {
			store.set(true)
			return once.Answer{}, nil
		})
		one(t, events(), core.Ran, 1, core.ErrUnavailable)
		o.Do(t.Context(), charge("2"), works)
		one(t, events(), core.Refused, 0, core.ErrUnavailable)
		store.set(false)
		time.Sleep(20 * time.Minute) // until all claims are cleaned up
	})
}
