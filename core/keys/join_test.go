package keys_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/keys"
	"github.com/lockkit/lockkit/core/memstore"
)

var whole = keys.Source{Adapter: "test", Kind: "key"}

func locker(tb testing.TB) *core.Locker {
	tb.Helper()
	l, err := core.New(memstore.New())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// same returns value. For Join, each source is then its own value.
func same(value string) (string, error) { return value, nil }

func TestKey(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("k", 512-len("order:"))
	for _, c := range []struct {
		name  string
		parts []string
		want  string // the expected key, if fault is empty
		fault string // a part of the expected error
	}{
		{name: "one part", parts: []string{"42"}, want: "order:42"},
		{name: "a part that Key escapes", parts: []string{"ü{%}"}, want: "order:ü%7B%25%7D"},
		{name: "two parts", parts: []string{"x", "y"}, want: "order:x:y"},
		{name: "six parts", parts: []string{"a", "b", "c", "d", "e", "f"}, want: "order:a:b:c:d:e:f"},
		{name: "parts with colons in front", parts: []string{"a:b", "c"}, want: "order:a%3Ab:c"},
		{name: "parts with colons behind", parts: []string{"a", "b:c"}, want: "order:a:b%3Ac"},
		{name: "parts with what looks escaped", parts: []string{"a%3Ab", "c"}, want: "order:a%253Ab:c"},
		{name: "the longest key", parts: []string{longest}, want: "order:" + longest},

		{name: "no part", fault: "the key is empty"},
		{name: "an empty part", parts: []string{""}, fault: "the key is empty"},
		{name: "parts of which one is empty", parts: []string{"a", ""}, fault: "the key is empty"},
		{name: "a control character", parts: []string{"a\nb"}, fault: "the key contains a control character"},
		{name: "a part that is too long", parts: []string{strings.Repeat("k", 513)}, fault: "the key is too long, 512 bytes are allowed"},
		{name: "a key that is too long", parts: []string{"k" + longest}, fault: "the key is too long, with name and escapes 512 bytes are allowed"},
		{name: "too long when escaped", parts: []string{strings.Repeat("%", 200)}, fault: "the key is too long, with name and escapes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			joined, err := keys.Join(c.parts, same)
			if err != nil {
				t.Fatal(err)
			}
			got, err := whole.Key("order", joined)
			check(t, got, err, c.want, c.fault)
			if lease, err := locker(t).TryAcquire(t.Context(), got); c.fault == "" && err != nil {
				t.Errorf("a Locker refuses the key: %v", err)
			} else if err == nil {
				_ = lease.Release(t.Context())
			}
			parts, err := whole.Parts(joined)
			if err == nil && !slices.Equal(parts, c.parts) {
				t.Errorf("the parts are %q, %q were joined", parts, c.parts)
			}
			if c.fault == "" && err != nil {
				t.Errorf("the parts of a key are bad: %v", err)
			}
		})
	}

	t.Run("join in a join", func(t *testing.T) {
		t.Parallel()
		inner, _ := keys.Join([]string{"a", "b"}, same)
		joined, _ := keys.Join([]string{inner, "c"}, same)
		got, err := whole.Key("x", joined)
		check(t, got, err, "x:a:b:c", "")
	})

	t.Run("first failing source", func(t *testing.T) {
		t.Parallel()
		own := errors.New("own")
		got, err := keys.Join([]error{nil, own, errors.New("other")}, func(err error) (string, error) { return "a", err })
		if got != "" || err != own {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// FuzzJoin searches for different parts with the same key, and for keys that differ
// from the result of core.Key.
func FuzzJoin(f *testing.F) {
	f.Add("a", "b", "a:", "b")
	f.Add("a:b", "c", "a", "b:c")
	f.Add("a\x1fb", "c", "a", "b\x1fc")
	f.Add("%3A", ":", ":", "%3A")
	f.Add("", "ab", "a", "b")
	f.Fuzz(func(t *testing.T, a1, a2, b1, b2 string) {
		key := func(parts ...string) string {
			joined, _ := keys.Join(parts, same)
			got, err := whole.Key("x", joined)
			if err != nil {
				if got != "" || !errors.Is(err, core.ErrInvalid) {
					t.Errorf("%q: got %q, %v", parts, got, err)
				}
				return ""
			}
			if want := core.Key("x", parts...); got != want && !strings.Contains(a1+a2+b1+b2, "\x1f") {
				t.Errorf("%q: got %q, want %q", parts, got, want)
			}
			return got
		}
		a, b := key(a1, a2), key(b1, b2)
		if a != "" && a == b && (a1 != b1 || a2 != b2) && !strings.Contains(a1+a2+b1+b2, "\x1f") {
			t.Errorf("%q, %q and %q, %q share the key %q", a1, a2, b1, b2, a)
		}
	})
}
