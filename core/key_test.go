package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
)

func TestKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		parts []string
		want  string
	}{
		{"order", nil, "order"},
		{"order", []string{"42"}, "order:42"},
		{"order", []string{""}, "order:"},
		{"order", []string{"", ""}, "order::"},
		{"order", []string{"a:b"}, "order:a%3Ab"},
		{"order", []string{"a", "b"}, "order:a:b"},
		{"order", []string{"100%"}, "order:100%25"},
		{"order", []string{"%3A"}, "order:%253A"},
		{"order", []string{"{tag}"}, "order:%7Btag%7D"},
		{"order", []string{"größe", "東京"}, "order:größe:東京"},
		{"odd", []string{"a\x00b"}, "odd:a%00b"},
		{"odd", []string{"\t\n", "\x7f"}, "odd:%09%0A:%7F"},
		{"odd", []string{"\u0085x"}, "odd:%C2%85x"},
		{"odd", []string{"\xffé\xc3"}, "odd:%FFé%C3"},
		{"odd", []string{"\ufffd"}, "odd:\ufffd"},
	} {
		t.Run(fmt.Sprintf("%s %q", c.name, c.parts), func(t *testing.T) {
			t.Parallel()
			if got := core.Key(c.name, c.parts...); got != c.want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func FuzzKey(f *testing.F) {
	for _, s := range []string{"", ":", "a:b|a|b", "%3A|:", "{|}", "%|%25", "|", "||", "a%3A|a:", "\xff|é"} {
		f.Add(s, strings.ReplaceAll(s, "|", ":"))
	}
	f.Fuzz(func(t *testing.T, x, y string) {
		// Each string is a list of parts, separated by bars.
		a, b := strings.Split(x, "|"), strings.Split(y, "|")
		ka, kb := core.Key("order", a...), core.Key("order", b...)
		if ka == kb && !slices.Equal(a, b) {
			t.Fatalf("parts %q and %q give the same key %q", a, b, ka)
		}
		if strings.ContainsAny(ka, "{}") || !utf8.ValidString(ka) || strings.ContainsFunc(ka, unicode.IsControl) {
			t.Fatalf("key %q of parts %q has what a key must not have", ka, a)
		}
		if core.Key("order") == ka {
			t.Fatalf("parts %q give the key of none", a)
		}
	})
}

func TestBusyError(t *testing.T) {
	t.Parallel()
	// The text of the error has the name, and never the key.
	t.Run("matches ErrBusy without the key", func(t *testing.T) {
		t.Parallel()
		err := error(&core.BusyError{Key: "order:secret", Name: "order", RetryAfter: 1})
		if !errors.Is(err, core.ErrBusy) || !errors.Is(fmt.Errorf("x: %w", err), core.ErrBusy) {
			t.Error("it does not match ErrBusy")
		}
		if errors.Is(err, core.ErrLost) {
			t.Error("it matches ErrLost")
		}
		if got := err.Error(); got != "order: lock is busy" {
			t.Errorf("got text %q", got)
		}
		if got := (&core.BusyError{Key: "order:secret"}).Error(); got != "lock is busy" {
			t.Errorf("got text %q without a name", got)
		}
	})
	t.Run("WithoutKey", func(t *testing.T) {
		t.Parallel()
		busy := &core.BusyError{Key: "order:secret", Name: "order", RetryAfter: time.Second, Waiting: 2}
		want := core.BusyError{Name: "order", RetryAfter: time.Second, Waiting: 2}
		if got := busy.WithoutKey(); *got != want || busy.Key == "" {
			t.Errorf("got %+v of %+v, want %+v", got, busy, want)
		}
	})
	for key, name := range map[string]string{
		"order:42":                     "order",
		"nightly-report.v_2":           "lock", // a key without ':' may be data
		"DE89370400440532013000":       "lock",
		"nightly-report.v_2:":          "nightly-report.v_2",
		strings.Repeat("n", 64) + ":1": strings.Repeat("n", 64),
		strings.Repeat("n", 65) + ":1": "lock",
		"größe:1":                      "lock",
		":1":                           "lock",
		"two words":                    "lock",
	} {
		sim(t, fmt.Sprintf("name of %q", key), func(t *testing.T) {
			l, _ := setup(t)
			lease := acquire(t, t.Context(), l, key)
			_, err := l.TryAcquire(t.Context(), key)
			wantName(t, err, name)
			var busy *core.BusyError
			if errors.As(err, &busy); busy.Key != key {
				t.Errorf("got key %q", busy.Key)
			}
			release(t, lease)
		})
	}
}

// braced is a store that accepts keys with braces if takes is set.
type braced struct {
	core.Store
	takes bool
}

func (b braced) Braces() bool { return b.takes }

func TestKeysWithBraces(t *testing.T) {
	t.Parallel()
	for _, takes := range []bool{true, false} {
		sim(t, fmt.Sprintf("taken %v", takes), func(t *testing.T) {
			l := newLocker(t, braced{memStore(), takes})
			for _, key := range []string{"{t1}:order:42", "order:{42}", "a}b", "{}"} {
				err := l.Do(t.Context(), key, func(ctx context.Context) error {
					if lease, _ := core.LeaseFromContext(ctx); lease.Key() != key {
						t.Errorf("the key is %s", lease.Key())
					}
					return nil
				}, core.Also("also:{1}"))
				if takes && err != nil || !takes && !errors.Is(err, core.ErrInvalid) {
					t.Errorf("%s: got %v", key, err)
				}
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	l, store := setup(t)
	for name, fits := range map[string]bool{
		"order": true, strings.Repeat("n", 64): true, strings.Repeat("n", 65): false, "two words": false, "": false,
	} {
		_, err := adapter.Check(l, core.Name(name))
		if fits && err != nil || !fits && !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%q: got %v", name, err)
		}
	}
	// This key consists of data only, and is far too long.
	_, err := l.Acquire(t.Context(), strings.Repeat("4242", 4000))
	wantErr(t, err, core.ErrInvalid)
	if text := err.Error(); len(text) > 200 || strings.Contains(text, "42424242") {
		t.Errorf("the error has %d bytes: %.300s", len(text), text)
	}
	if n := store.count(); n != 0 {
		t.Errorf("%d calls were sent", n)
	}
}
