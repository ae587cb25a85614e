package core_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

func opts(o ...core.AcquireOption) []core.AcquireOption { return o }

// refused has acquires with keys and options that are not allowed. say is a part of the
// expected error.
var refused = []struct {
	name, key string
	opts      []core.AcquireOption
	say       string
}{
	{"an empty key", "", nil, "key is empty"},
	{"a key of 513 bytes", strings.Repeat("k", 513), nil, "513 bytes"},
	{"a key of 600 bytes", "order:" + strings.Repeat("x", 594), nil, "600 bytes"},
	{"a key that is not UTF-8", "order:\xff\xfe", nil, "UTF-8"},
	{"a key with a zero byte", "order:\x00", nil, "control character U+0000"},
	{"a key with a newline", "order:\n", nil, "control character U+000A"},
	{"a key with a C1 control", "order:\u0085", nil, "control character U+0085"},
	{"a key with an opening brace", "order:{1", nil, "brace"},
	{"a key with a closing brace", "order:1}", nil, "brace"},
	{"a bad key in Also", "order:1", opts(core.Also("order:2", "order:{3}")), "Also: key contains a brace"},
	{"an empty key in Also", "order:1", opts(core.Also("")), "Also: key is empty"},
	{"TTL 0", "order:1", opts(core.TTL(0)), "TTL 0 s is out of range"},
	{"a negative TTL", "order:1", opts(core.TTL(-time.Second)), "TTL -1 s is out of range"},
	{"a TTL of 10ms", "order:1", opts(core.TTL(10 * time.Millisecond)), "TTL 10 ms is out of range"},
	{"a TTL of 25 days", "order:1", opts(core.TTL(25 * 24 * time.Hour)), "TTL 25 days is out of range (100 ms to 24 days)"},
	{"a negative Wait", "order:1", opts(core.Wait(-1)), "Wait"},
	{"MaxHold 0", "order:1", opts(core.MaxHold(0)), "MaxHold"},
	{"a negative MaxHold", "order:1", opts(core.MaxHold(-time.Second)), "MaxHold"},
	{"a negative KeepFor", "order:1", opts(core.KeepFor(-1)), "KeepFor"},
	{"KeepFor of 25 days", "order:1", opts(core.KeepFor(25 * 24 * time.Hour)), "out of range (0 to 24 days)"},
	{"more permits than there are", "order:1", opts(core.Permits(4, 3)), "Permits(4, 3)"},
	{"no permits", "order:1", opts(core.Permits(0, 3)), "Permits(0, 3)"},
	{"permits of nothing", "order:1", opts(core.Permits(0, 0)), "Permits(0, 0)"},
	{"negative permits", "order:1", opts(core.Permits(-1, 3)), "Permits(-1, 3)"},
	{"permits of All", "order:1", opts(core.Permits(1, int(store.All))), "Permits(1, 2147483647)"},
	{"Shared with Permits", "order:1", opts(core.Shared(), core.Permits(1, 2)), "Shared and Permits"},
	{"Fenced with Shared", "order:1", opts(core.Fenced(), core.Shared()), "Fenced"},
	{"Fenced with Permits", "order:1", opts(core.Permits(1, 2), core.Fenced()), "Fenced"},
	{"a name with a space", "order:1", opts(core.Name("my order")), "Name"},
	{"a name with a colon", "order:1", opts(core.Name("order:1")), "Name"},
	{"an empty name", "order:1", opts(core.Name("")), "Name"},
	{"a name that is not ASCII", "order:1", opts(core.Name("ördér")), "Name"},
	{"a policy without end", "order:1", opts(core.Retry(retry.Policy{Initial: 1})), "Retry"},
	{"a policy with a negative pause", "order:1", opts(core.Retry(retry.Policy{Initial: -1, Attempts: 2})), "Initial"},
	{"a policy with NaN", "order:1", opts(core.Retry(retry.Policy{Jitter: math.NaN()})), "Jitter"},
	{"a nil option", "order:1", opts(core.Wait(0), nil), "option is nil"},
}

func TestRefusedOptions(t *testing.T) {
	t.Parallel()
	for _, c := range refused {
		sim(t, c.name, func(t *testing.T) {
			l, store := setup(t)
			_, errTry := l.TryAcquire(t.Context(), c.key, c.opts...)
			_, err := l.Acquire(t.Context(), c.key, c.opts...)
			errDo := l.Do(t.Context(), c.key, func(context.Context) error {
				t.Error("fn ran")
				return nil
			}, c.opts...)
			for _, err := range []error{err, errTry, errDo} {
				wantErr(t, err, core.ErrInvalid)
				wantNot(t, err, core.ErrBusy, core.ErrUnavailable)
				if !strings.Contains(err.Error(), c.say) {
					t.Errorf("error %q does not say %q", err, c.say)
				}
				if !strings.HasPrefix(err.Error(), "core: acquire \"") || strings.Count(err.Error(), "lockkit: invalid argument") != 1 {
					t.Errorf("error %q, want the operation first and the sentinel once", err)
				}
			}
			if n := store.count(); n != 0 {
				t.Errorf("%d calls were sent, want none", n)
			}
		})
	}
	t.Run("error without the key", func(t *testing.T) {
		t.Parallel()
		l, _ := setup(t)
		_, err := l.Acquire(t.Context(), "order:secret\x01")
		if wantErr(t, err, core.ErrInvalid); strings.Contains(err.Error(), "secret") {
			t.Errorf("error %q shows the key", err)
		}
	})
}

// nilStore is the type of a store that is a nil pointer.
type nilStore struct{ core.Store }

func TestNew(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	for name, c := range map[string]struct {
		store core.Store
		opts  []core.Option
	}{
		"a nil store":               {nil, nil},
		"a nil pointer as store":    {(*nilStore)(nil), nil},
		"a nil option":              {store, []core.Option{nil}},
		"a nil pointer as observer": {store, []core.Option{core.WithObserver((*recorder)(nil))}},
		"a nil default":             {store, []core.Option{core.WithDefaults(core.Wait(0), nil)}},
		"a bad default":             {store, []core.Option{core.WithDefaults(core.TTL(time.Millisecond))}},
		"conflicting defaults": {store, []core.Option{
			core.WithDefaults(core.Shared()), core.WithDefaults(core.Permits(1, 2)),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := core.New(c.store, c.opts...)
			if l != nil {
				t.Error("got a Locker, want none")
			}
			wantErr(t, err, core.ErrInvalid)
		})
	}
	sim(t, "nil functions", func(t *testing.T) {
		l, store := setup(t)
		wantErr(t, l.Do(t.Context(), "order:1", nil), core.ErrInvalid)
		if n := store.count(); n != 0 {
			t.Errorf("%d calls were sent, want none", n)
		}
	})
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	// Defaults apply, and the options of a call take precedence.
	sim(t, "defaults and options", func(t *testing.T) {
		l, store := setup(t, core.WithDefaults(core.TTL(5*time.Second), core.Fair()), core.WithDefaults(core.Name("job")))
		a := acquire(t, t.Context(), l, "order:1")
		b := acquire(t, t.Context(), l, "order:2", core.TTL(7*time.Second), core.Name("pay"))
		sent := store.sent(opAcquire)
		if c := sent[0].claims[0]; c.TTL != 5*time.Second || !c.Fair {
			t.Errorf("claim with defaults: TTL %v, fair %t; want 5s, true", c.TTL, c.Fair)
		}
		if c := sent[1].claims[0]; c.TTL != 7*time.Second || !c.Fair {
			t.Errorf("claim with its own TTL: TTL %v, fair %t; want 7s, true", c.TTL, c.Fair)
		}
		_, err := l.TryAcquire(t.Context(), "order:1")
		wantName(t, err, "job")
		_, err = l.TryAcquire(t.Context(), "order:2", core.Name("pay"))
		wantName(t, err, "pay")
		release(t, a)
		release(t, b)
	})
	// Without options a lease is exclusive, not fair, and has a TTL of 30 seconds.
	sim(t, "no options", func(t *testing.T) {
		l, s := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		c := s.sent(opAcquire)[0].claims[0]
		if c.TTL != 30*time.Second || c.Weight != store.All || c.Limit != store.All || c.Fair || c.Wait || c.MinToken != 0 || c.Via != "" {
			t.Errorf("got claim %+v", c)
		}
		if len(lease.Owner()) < 26 { // 128 bits in base 32
			t.Errorf("owner of %d letters, want 128 bits", len(lease.Owner()))
		}
		release(t, lease)
	})
	sim(t, "values at the limits", func(t *testing.T) {
		l, _ := setup(t)
		for key, o := range map[string]core.AcquireOption{
			strings.Repeat("k", 512): core.TTL(100 * time.Millisecond),
			"order:24 days":          core.TTL(24 * 24 * time.Hour),
			"order:kept":             core.KeepFor(0),
			"order:permits":          core.Permits(int(store.All)-1, int(store.All)-1),
			"order:one":              core.Permits(1, 1),
			"order:none":             core.Retry(retry.None),
			" ~é東":                   core.Name("A-z_0.9"),
		} {
			release(t, acquire(t, t.Context(), l, key, o))
		}
	})
	// The TTLs that the store gets are whole milliseconds.
	sim(t, "whole milliseconds", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1", core.TTL(1234567*time.Microsecond))
		if err := lease.Extend(t.Context(), 2345678*time.Microsecond); err != nil {
			t.Fatal(err)
		}
		release(t, lease)
		for _, o := range []op{opAcquire, opExtend} {
			if ttl := store.sent(o)[0].claims[0].TTL; ttl%time.Millisecond != 0 {
				t.Errorf("%s: TTL of %v was sent", o, ttl)
			}
		}
	})
}

func wantName(t *testing.T, err error, name string) {
	t.Helper()
	var busy *core.BusyError
	ok := errors.As(err, &busy)
	if !ok || busy.Name != name {
		t.Fatalf("got error %#v, want a *BusyError of %s", err, name)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	l, err := core.New(memStore(), core.WithDefaults(core.Wait(time.Second), core.Shared()))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		opts []core.AcquireOption
		wait time.Duration
		ok   bool
	}{
		"defaults":                          {nil, time.Second, true},
		"options after defaults":            {[]core.AcquireOption{core.Wait(0)}, 0, true},
		"options that the defaults exclude": {[]core.AcquireOption{core.Permits(1, 2)}, 0, false},
		"option not allowed":                {[]core.AcquireOption{core.TTL(0)}, 0, false},
	} {
		wait, err := adapter.Check(l, c.opts...)
		if wait != c.wait || (err == nil) != c.ok || err != nil && !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%s: got %v, %v", name, wait, err)
		}
	}
}
