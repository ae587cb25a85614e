package once_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
)

func TestCallRefusals(t *testing.T) {
	t.Parallel()
	store := newFlaky()
	o := newOnce(t, store)
	const secret = "hunter2"
	for name, edit := range map[string]func(*once.Call){
		"no name":                          func(c *once.Call) { c.Name = "" },
		"a name with a colon":              func(c *once.Call) { c.Name = "charge:" + secret },
		"a name with a space":              func(c *once.Call) { c.Name = "charge " + secret },
		"a name of another alphabet":       func(c *once.Call) { c.Name = "кредит" },
		"a name that is too long":          func(c *once.Call) { c.Name = strings.Repeat("n", 65) },
		"no key":                           func(c *once.Call) { c.Key = "" },
		"a key that is too long":           func(c *once.Call) { c.Key = secret + strings.Repeat("k", 512) },
		"a key with a control character":   func(c *once.Call) { c.Key = secret + "\n" },
		"a key that is not UTF-8":          func(c *once.Call) { c.Key = secret + "\xff" },
		"a scope that is too long":         func(c *once.Call) { c.Scope = secret + strings.Repeat("s", 512) },
		"a scope with a control character": func(c *once.Call) { c.Scope = secret + "\x00" },
		"a scope that is not UTF-8":        func(c *once.Call) { c.Scope = "\xc3" + secret },
		"a fingerprint that is too long":   func(c *once.Call) { c.Fingerprint = make([]byte, 513) },
	} {
		c := charge("1")
		edit(&c)
		var r runs
		_, err := o.Do(t.Context(), c, r.work("x"))
		if !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", name, err, core.ErrInvalid)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %q shows the call", name, err)
		}
		r.want(t, 0)
	}
	if n := store.count(); n != 0 {
		t.Errorf("%d calls were made", n)
	}
	for name, c := range map[string]once.Call{
		"the least": {Name: "c", Key: "1"},
		"the most": {
			Name: strings.Repeat("n", 64), Scope: strings.Repeat("s", 512), Key: strings.Repeat("k", 512),
			Fingerprint: make([]byte, 512),
		},
		"anything printable": {Name: "A-z_0.9", Scope: "{a}:%20/ü", Key: "{b}:%20 \"日本\"", Fingerprint: []byte("\x00\xff\n")},
	} {
		t.Log(name)
		first(t, o, c, "receipt", 1)
		replayed(t, o, c, "receipt", 1)
	}
}

// TestScope checks that different calls never share a record, even if the concatenations
// of their parts are equal.
func TestScope(t *testing.T) {
	t.Parallel()
	t.Run("one place per call", func(t *testing.T) {
		t.Parallel()
		parts := []string{"a", "b", "ab", "ba", "aa", "a1a", "1a", "a:b", "1"}
		seen := make(map[string]once.Call)
		for _, name := range []string{"a", "b", "ab", "a1a", "1a"} {
			for _, scope := range append(parts, "") {
				for _, key := range parts {
					c := once.Call{Name: name, Scope: scope, Key: key}
					at := once.StoreKey(c)
					if other, ok := seen[at]; ok {
						t.Fatalf("%+v and %+v are both kept at %s", c, other, at)
					}
					seen[at] = c
				}
			}
		}
	})
	t.Run("place shows only the name", func(t *testing.T) {
		t.Parallel()
		c := once.Call{Name: "charge", Scope: "tenant-9", Key: "hunter2", Fingerprint: []byte("10 EUR")}
		at := once.StoreKey(c)
		if !strings.HasPrefix(at, "once:charge:") || strings.Contains(at, "tenant") || strings.Contains(at, "hunter") {
			t.Errorf("kept at %s", at)
		}
		c.Fingerprint = nil
		if once.StoreKey(c) != at {
			t.Error("the fingerprint is part of the place: another request would not be noticed")
		}
	})
	// A record of another call under the key is not an answer, and fn is not run.
	sim(t, "record of another call", func(t *testing.T) {
		mine, others := charge("1"), charge("1")
		others.Scope = "somebody else"
		for name, kept := range map[string]store.Record{
			"done":          {Value: once.Encode(others, once.Done, 1, []byte("secret")), Attempt: 1, Done: true},
			"unreplayable":  {Value: once.Encode(others, once.Unreplayable, 1, nil), Attempt: 1, Done: true},
			"indeterminate": {Value: once.Encode(others, once.Indeterminate, 1, nil), Attempt: 1, Done: true},
			"failed":        {Value: once.Encode(others, once.Failed, 1, nil), Attempt: 1},
			"begun":         {Value: once.Encode(others, once.Begun, 0, nil), Attempt: 1},
		} {
			store := memstore.New()
			plant(t, store, mine, kept)
			o := newOnce(t, store)
			for range 2 {
				err := refused(t, o, mine, core.ErrUnsupported)
				for _, e := range []error{once.ErrMismatch, once.ErrIndeterminate, once.ErrUnreplayable, core.ErrInvalid} {
					if errors.Is(err, e) {
						t.Errorf("%s: %v matches %v", name, err, e)
					}
				}
			}
			wantKept(t, store, mine, kept)
		}
	})
	// Errors contain no key and no scope.
	sim(t, "errors without secrets", func(t *testing.T) {
		c := once.Call{Name: "charge", Scope: "tenant-9", Key: "hunter2", Fingerprint: []byte("1")}
		store := newFlaky()
		strict := newOnce(t, store, once.AtMostOnce())
		var all []error
		note := func(o *once.Once, c once.Call, fn func(context.Context) (once.Answer, error)) {
			_, err := o.Do(t.Context(), c, fn)
			all = append(all, err)
		}
		note(strict, c, func(ctx context.Context) (once.Answer, error) {
			note(strict, c, new(runs).work("x"))
			return once.Answer{Unreplayable: true}, nil
		})
		note(strict, c, new(runs).work("x"))
		c.Fingerprint = nil
		note(strict, c, new(runs).work("x"))
		c.Key += "2"
		note(strict, c, new(runs).failing(once.ErrIndeterminate))
		note(strict, c, new(runs).work("x"))
		store.set(true)
		note(strict, c, new(runs).work("x"))
		store.set(false) // otherwise the clean-up would try for minutes to undo a run
		for i, err := range all {
			if err == nil && i != 1 || err != nil && (strings.Contains(err.Error(), "hunter") || strings.Contains(err.Error(), "tenant")) {
				t.Errorf("error %d is %v", i, err)
			}
		}
	})
}

// plant stores r under the key of c.
func plant(t *testing.T, s core.Store, c once.Call, r store.Record) {
	t.Helper()
	lease, _, err := newLocker(t, s).Begin(t.Context(), once.StoreKey(c), store.Record{Retain: retained})
	if err != nil {
		t.Fatal(err)
	}
	r.Retain = retained
	if err := lease.Finish(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// wantKept fails the test unless the record under the key of c is r.
func wantKept(t *testing.T, s core.Store, c once.Call, r store.Record) {
	t.Helper()
	lease, kept, err := newLocker(t, s).Begin(t.Context(), once.StoreKey(c), store.Record{Retain: retained}, core.Wait(0))
	if err != nil {
		t.Fatal(err)
	}
	if lease != nil {
		kept.Attempt-- // the Begin above has counted one attempt
		_ = lease.Finish(t.Context(), store.Record{Value: kept.Value, Attempt: kept.Attempt, Retain: retained})
	}
	if string(kept.Value) != string(r.Value) || kept.Attempt != r.Attempt || kept.Done != r.Done {
		t.Errorf("kept is %q of attempt %d, done %v; want %q, %d, %v",
			kept.Value, kept.Attempt, kept.Done, r.Value, r.Attempt, r.Done)
	}
}
