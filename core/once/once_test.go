package once_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestDo(t *testing.T) {
	t.Parallel()
	// A first run takes two calls to the store, and each replay one.
	sim(t, "two calls and one", func(t *testing.T) {
		store := newFlaky()
		o := newOnce(t, store)
		first(t, o, charge("1"), "receipt", 1)
		if n := store.count(); n != 2 {
			t.Errorf("the first run cost %d calls, want 2", n)
		}
		for i := range 3 {
			replayed(t, o, charge("1"), "receipt", 1)
			replayed(t, newOnce(t, store), charge("1"), "receipt", 1)
			if n := store.count(); n != 4+2*i {
				t.Errorf("after %d replays there were %d calls, want %d", 2*i+2, n, 4+2*i)
			}
		}
	})
	sim(t, "empty answer", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		first(t, o, charge("1"), "", 1)
		replayed(t, o, charge("1"), "", 1)
	})
	sim(t, "other keys names and scopes", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		first(t, o, charge("1"), "one", 1)
		for i, c := range []once.Call{charge("2"), charge("1"), charge("1")} {
			switch i {
			case 1:
				c.Name = "refund"
			case 2:
				c.Scope = "other"
			}
			first(t, o, c, "another", 1)
		}
		replayed(t, o, charge("1"), "one", 1)
	})
	// A failed run can be run again, and fn gets the number of the next attempt.
	sim(t, "failed run", func(t *testing.T) {
		o, declined := newOnce(t, memstore.New()), errors.New("declined")
		for attempt := 1; attempt <= 3; attempt++ {
			var r runs
			out, err := o.Do(t.Context(), charge("1"), r.failing(declined))
			if err != declined || out.Attempt != attempt || out.Replayed || out.Value != nil {
				t.Errorf("got %+v and %v, want fn's own error of attempt %d", out, err, attempt)
			}
		}
		first(t, o, charge("1"), "receipt", 4)
		replayed(t, o, charge("1"), "receipt", 4)
	})
	// Another request under the key is refused after a finished run and after a failed
	// run (hazard 60).
	sim(t, "another request under the key", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		other := charge("1")
		other.Fingerprint = []byte("1000 EUR")
		none := charge("1")
		none.Fingerprint = nil
		_, _ = o.Do(t.Context(), charge("1"), new(runs).failing(errors.New("declined")))
		for range 3 {
			refused(t, o, other, once.ErrMismatch)
			refused(t, o, none, once.ErrMismatch)
		}
		first(t, o, charge("1"), "receipt", 2) // refused calls do not count
		refused(t, o, other, once.ErrMismatch)
		refused(t, o, none, once.ErrMismatch)
		replayed(t, o, charge("1"), "receipt", 2)
	})
	// The work of an answer above the limit counts as done, and is not run again.
	sim(t, "answer above the limit", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		long := make([]byte, 32<<20+1)
		out, err := o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) {
			return once.Answer{Value: long}, nil
		})
		if err != nil || len(out.Value) != len(long) {
			t.Fatalf("Do gave %d bytes and %v", len(out.Value), err)
		}
		refused(t, o, charge("1"), once.ErrUnreplayable)
	})
	// The work of an unreplayable answer is not run again. Later callers get
	// ErrUnreplayable.
	sim(t, "unreplayable answer", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		out, err := o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) {
			return once.Answer{Value: []byte("a stream"), Unreplayable: true}, nil
		})
		if err != nil || string(out.Value) != "a stream" || out.Replayed {
			t.Errorf("got %+v and %v, want the value for its own caller", out, err)
		}
		for range 3 {
			refused(t, o, charge("1"), once.ErrUnreplayable)
		}
		other := charge("1")
		other.Fingerprint = []byte("1000 EUR")
		refused(t, o, other, once.ErrMismatch)
	})
	// A panic continues, and leaves a failed run and a free key (hazard 50).
	sim(t, "panic of the function", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		for attempt := 1; attempt <= 2; attempt++ {
			func() {
				defer func() {
					if p := recover(); p != "card reader on fire" {
						t.Errorf("recovered %v", p)
					}
				}()
				_, _ = o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) { panic("card reader on fire") })
			}()
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) { runtime.Goexit(); return once.Answer{}, nil })
		}()
		<-ended
		start := time.Now()
		first(t, o, charge("1"), "receipt", 4)
		if time.Since(start) > 0 {
			t.Error("the key was not free at once")
		}
	})
	// Only the caller of the run gets an answer that is too long to be stored.
	sim(t, "long answer for its caller", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		out, err := o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) {
			// The value is never written, so it uses no memory.
			return once.Answer{Value: make([]byte, 256<<20+1)}, nil
		})
		if err != nil || len(out.Value) <= 256<<20 {
			t.Errorf("got %d bytes and %v, want the value", len(out.Value), err)
		}
		refused(t, o, charge("1"), once.ErrUnreplayable)
	})
	// The stored answer does not change if the caller changes its own copy.
	sim(t, "changed by its caller", func(t *testing.T) {
		o := newOnce(t, memstore.New())
		value := []byte("receipt")
		out, err := o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) { return once.Answer{Value: value}, nil })
		if err != nil {
			t.Fatal(err)
		}
		clear(value)
		clear(out.Value)
		out, _ = o.Do(t.Context(), charge("1"), new(runs).work("again"))
		clear(out.Value)
		replayed(t, o, charge("1"), "receipt", 1)
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	shared, err := core.New(memstore.New(), core.WithDefaults(core.Shared()))
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]func() (*once.Once, error){
		"without a locker":               func() (*once.Once, error) { return once.New(nil) },
		"with a nil option":              func() (*once.Once, error) { return once.New(locks, nil) },
		"retaining nothing":              func() (*once.Once, error) { return once.New(locks, once.Retain(0)) },
		"retaining for a century":        func() (*once.Once, error) { return once.New(locks, once.Retain(100*365*24*time.Hour)) },
		"with a bad TTL":                 func() (*once.Once, error) { return once.New(locks, lasting(time.Millisecond)) },
		"with a nil acquire option":      func() (*once.Once, error) { return once.New(locks, once.Acquire(nil)) },
		"for readers":                    func() (*once.Once, error) { return once.New(locks, once.Acquire(core.Shared())) },
		"for permits":                    func() (*once.Once, error) { return once.New(locks, once.Acquire(core.Permits(1, 2))) },
		"for several keys":               func() (*once.Once, error) { return once.New(locks, once.Acquire(core.Also("b"))) },
		"to keep the key taken":          func() (*once.Once, error) { return once.New(locks, once.Acquire(core.KeepFor(time.Second))) },
		"on a locker of readers":         func() (*once.Once, error) { return once.New(shared) },
		"with the first of two mistakes": func() (*once.Once, error) { return once.New(locks, once.Retain(-1), once.Retain(time.Hour)) },
	} {
		if o, err := try(); o != nil || !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, core.ErrInvalid)
		}
	}
	plain, err := redisstore.New(testclient.Redis(t, "127.0.0.1:1"), redisstore.WithPlainKeys())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close() })
	recordless, err := core.New(plain)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := once.New(recordless); o != nil || !errors.Is(err, core.ErrUnsupported) || !strings.Contains(err.Error(), "once") {
		t.Errorf("a store without records: got %v, want %v", err, core.ErrUnsupported)
	}
	if o, err := once.New(locks); err != nil {
		t.Error(err)
	} else if _, err := o.Do(t.Context(), charge("1"), nil); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("without fn: got %v, want %v", err, core.ErrInvalid)
	}
}
