package core_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

func TestContextWithOwner(t *testing.T) {
	t.Parallel()
	// A key that was joined from another process is free when both leases are released.
	sim(t, "joined from another process", func(t *testing.T) {
		for _, outerFirst := range []bool{true, false} {
			l, store := setup(t)
			other := newLocker(t, store.inner)
			outer := acquire(t, t.Context(), l, "order:1")
			joined := acquire(t, core.ContextWithOwner(t.Context(), outer.Owner()), other, "order:1")
			if joined.Owner() != outer.Owner() || joined.Token() != outer.Token() {
				t.Error("owner or token differ")
			}
			a, b := outer, joined
			if !outerFirst {
				a, b = joined, outer
			}
			release(t, a)
			time.Sleep(time.Hour)
			wantHeldLease(t, b)
			wantHeld(t, store.inner, "order:1")
			release(t, b)
			wantFree(t, store.inner, "order:1")
		}
	})
	// For each of several keys, a lease that joins has the outer lease's token of this
	// key.
	sim(t, "several keys", func(t *testing.T) {
		l, store := setup(t)
		for _, keys := range [][]string{{"order:1", "order:2"}, {"order:1", "order:2"}, {"order:2", "order:1"}} {
			outer := acquire(t, t.Context(), l, keys[0], core.Also(keys[1]))
			joined := acquire(t, core.ContextWithOwner(t.Context(), outer.Owner()), newLocker(t, store.inner), keys[0], core.Also(keys[1]))
			for _, key := range keys {
				if outer.TokenOf(key) == 0 || joined.TokenOf(key) != outer.TokenOf(key) {
					t.Errorf("%s: the token is %d, and joined %d", key, outer.TokenOf(key), joined.TokenOf(key))
				}
			}
			one := acquire(t, core.ContextWithOwner(t.Context(), outer.Owner()), newLocker(t, store.inner), keys[1])
			if one.Token() != outer.TokenOf(keys[1]) {
				t.Errorf("%s alone: the token is %d, and joined %d", keys[1], outer.TokenOf(keys[1]), one.Token())
			}
			release(t, one)
			release(t, joined)
			release(t, outer)
			// This makes the tokens of the two keys differ.
			release(t, acquire(t, t.Context(), l, "order:2"))
		}
	})
	// The owner of a joined hold can be joined again.
	sim(t, "owner of a joined hold", func(t *testing.T) {
		l, store := setup(t)
		ctx := t.Context()
		var leases []*core.Lease
		for range 4 {
			lease := acquire(t, ctx, newLocker(t, store.inner), "order:1")
			leases, ctx = append(leases, lease), core.ContextWithOwner(t.Context(), lease.Owner())
		}
		_, err := l.TryAcquire(t.Context(), "order:1")
		wantErr(t, err, core.ErrBusy)
		for _, lease := range leases {
			wantHeld(t, store.inner, "order:1")
			release(t, lease)
		}
		wantFree(t, store.inner, "order:1")
	})
	// The owner in a context is ignored if it does not hold the key.
	sim(t, "owner without the key", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		gone := acquire(t, t.Context(), other, "order:1")
		release(t, gone)
		elsewhere := acquire(t, t.Context(), other, "order:2")
		for _, owner := range []string{"nobody", "", gone.Owner(), elsewhere.Owner()} {
			ctx := core.ContextWithOwner(t.Context(), owner)
			lease := acquire(t, ctx, l, "order:1")
			if lease.Owner() == owner {
				t.Errorf("got the owner %q", owner)
			}
			_, err := other.TryAcquire(ctx, "order:1")
			wantErr(t, err, core.ErrBusy)
			release(t, lease)
		}
		release(t, elsewhere)
	})
	// A caller whose context has an owner that does not hold the key waits like any
	// other caller.
	sim(t, "owner without the key waits", func(t *testing.T) {
		l, store := setup(t)
		holder := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
		time.AfterFunc(10*time.Second, func() { holder.Release(context.Background()) })
		start := time.Now()
		lease := acquire(t, core.ContextWithOwner(t.Context(), "nobody"), l, "order:1")
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("it had the key after %v, want 10s", d)
		}
		release(t, lease)
	})
	// A caller that joins a hold does not wait behind other callers of its process. The
	// other callers may wait for the holder.
	sim(t, "join before local waiters", func(t *testing.T) {
		for _, o := range [][]core.AcquireOption{nil, opts(core.Fair()), opts(core.Shared())} {
			l, store := setup(t)
			outer := acquire(t, t.Context(), newLocker(t, store.inner), "order:1")
			done := make(chan error)
			for range 3 {
				go func() { done <- l.Do(t.Context(), "order:1", func(context.Context) error { return nil }) }()
				synctest.Wait()
			}
			ctx := core.ContextWithOwner(t.Context(), outer.Owner())
			start := time.Now()
			joined := acquire(t, ctx, l, "order:1", o...)
			tried, err := l.TryAcquire(ctx, "order:1", o...)
			if err != nil || time.Since(start) != 0 {
				t.Fatalf("got %v after %v", err, time.Since(start))
			}
			release(t, tried)
			release(t, joined)
			release(t, outer)
			for range 3 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
	})
	sim(t, "heavier claim", func(t *testing.T) {
		l, store := setup(t)
		outer := acquire(t, t.Context(), newLocker(t, store.inner), "order:1", core.Shared())
		_, err := l.Acquire(core.ContextWithOwner(t.Context(), outer.Owner()), "order:1")
		wantErr(t, err, core.ErrInvalid)
		wantHeldLease(t, outer)
		release(t, outer)
	})
	sim(t, "permits do not join", func(t *testing.T) {
		l, store := setup(t)
		outer := acquire(t, t.Context(), newLocker(t, store.inner), "pool", core.Permits(2, 2))
		_, err := l.TryAcquire(core.ContextWithOwner(t.Context(), outer.Owner()), "pool", core.Permits(1, 2))
		wantErr(t, err, core.ErrBusy)
		release(t, outer)
	})
	// The hold of another Locker's lease is joined if both Lockers have the same store,
	// and is ignored otherwise.
	sim(t, "lease of another Locker", func(t *testing.T) {
		l, store := setup(t)
		outer := acquire(t, t.Context(), l, "order:1")
		same := acquire(t, outer.Context(), newLocker(t, store.inner), "order:1")
		if same.Owner() != outer.Owner() {
			t.Error("it did not join at the same store")
		}
		elsewhere := acquire(t, outer.Context(), newLocker(t, memStore()), "order:1")
		if elsewhere.Owner() == outer.Owner() {
			t.Error("it has an owner of another store")
		}
		for _, lease := range []*core.Lease{elsewhere, same, outer} {
			release(t, lease)
		}
	})
}

// checked returns text followed by its checksum, like an owner's text.
func checked(text string) string {
	h := fnv.New64a()
	h.Write([]byte(text))
	return text + "." + strconv.FormatUint(h.Sum64(), 36)
}

func TestContextWithOwner_ChangedText(t *testing.T) {
	t.Parallel()
	sim(t, "changed text joins nothing", func(t *testing.T) {
		l, store := setup(t)
		other := newLocker(t, store.inner)
		for _, o := range [][]core.AcquireOption{nil, opts(core.Also("order:2")), opts(core.Shared())} {
			outer := acquire(t, t.Context(), other, "order:1", o...)
			text := outer.Owner()
			secret, _, _ := strings.Cut(text, ".")
			changed := []string{
				" ", text + " ", " " + text, text + "\n", text + text, text + "." + text, text + ".",
				secret, checked(""), checked(secret[1:]), checked(secret + "A"), checked(strings.ToLower(secret)),
			}
			for i := range text {
				changed = append(changed, text[:i], text[i+1:])
				for _, letter := range "A7.-" {
					changed = append(changed, text[:i]+string(letter)+text[i+1:])
				}
			}
			for _, c := range changed {
				if c == text {
					continue
				}
				ctx := core.ContextWithOwner(t.Context(), c)
				if _, err := l.TryAcquire(ctx, "order:1"); !errors.Is(err, core.ErrBusy) {
					t.Fatalf("held key, %q of %q: got %v, want %v", c, text, err, core.ErrBusy)
				}
				release(t, acquire(t, ctx, l, "order:9"))
			}
			release(t, outer)
		}
	})
	sim(t, "token of another grant", func(t *testing.T) {
		l, s := setup(t)
		other := newLocker(t, s.inner)
		outer := acquire(t, t.Context(), other, "order:1")
		secret, _, _ := strings.Cut(outer.Owner(), ".")
		for _, token := range []uint64{outer.Token() + store.TokenStep + 4096, outer.Token() + 1<<20, math.MaxUint64} {
			ctx := core.ContextWithOwner(t.Context(), checked(fmt.Sprint(secret, ".", token)))
			joined := acquire(t, ctx, l, "order:1")
			if joined.Token() != outer.Token() {
				t.Errorf("got the token %d, want the store's %d", joined.Token(), outer.Token())
			}
			release(t, joined)
		}
		wantHeldLease(t, outer)
		release(t, outer)
		wantFree(t, s.inner, "order:1")
	})
}

func FuzzContextWithOwner(f *testing.F) {
	l, err := core.New(memStore())
	if err != nil {
		f.Fatal(err)
	}
	outer, err := l.Acquire(f.Context(), "order:1")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(outer.Owner() + "A")
	f.Add(checked("nobody.1-2.3"))
	f.Add(checked("."))
	f.Fuzz(func(t *testing.T, text string) {
		_, err := l.TryAcquire(core.ContextWithOwner(t.Context(), text), "order:1")
		if !errors.Is(err, core.ErrBusy) {
			t.Errorf("%q: got %v, want %v", text, err, core.ErrBusy)
		}
	})
}

func TestLeaseFromContext(t *testing.T) {
	t.Parallel()
	// LeaseFromContext returns the innermost lease, and LeaseOf the innermost lease of
	// a key.
	sim(t, "innermost leases", func(t *testing.T) {
		l, _ := setup(t)
		type name struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), name{}, "Ada"), time.Hour)
		defer cancel()
		if _, ok := core.LeaseFromContext(ctx); ok {
			t.Error("a plain context has a lease")
		}
		if _, ok := core.LeaseOf(ctx, "order:1"); ok {
			t.Error("a plain context has a lease of order:1")
		}
		a := acquire(t, ctx, l, "order:1", core.Also("order:9"))
		b := acquire(t, a.Context(), l, "account:1")
		c := acquire(t, b.Context(), l, "order:1")
		ctx, cancel = context.WithCancel(c.Context())
		defer cancel()
		if lease, ok := core.LeaseFromContext(ctx); !ok || lease != c {
			t.Error("the innermost lease is not found")
		}
		for key, want := range map[string]*core.Lease{"order:1": c, "account:1": b, "order:9": a, "order:2": nil} {
			if lease, ok := core.LeaseOf(ctx, key); lease != want || ok != (want != nil) {
				t.Errorf("of %s it finds %p, want %p", key, lease, want)
			}
		}
		if lease, ok := core.LeaseOf(b.Context(), "order:1"); !ok || lease != a {
			t.Error("of order:1 the outer context does not find its own")
		}
		if got := ctx.Value(name{}); got != "Ada" {
			t.Errorf("the value of the caller's context is %v", got)
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the deadline of the caller's context is missing")
		}
		release(t, c)
		if lease, ok := core.LeaseOf(context.WithoutCancel(ctx), "order:1"); !ok || lease != c || lease.Context().Err() == nil {
			t.Error("a released lease is found no more, or is still good")
		}
		release(t, b)
		release(t, a)
	})
	// Derived contexts are done when the lease's context is done, with the same cause.
	sim(t, "derived contexts", func(t *testing.T) {
		l, store := setup(t)
		lease := acquire(t, t.Context(), l, "order:1")
		child, cancel := context.WithTimeout(lease.Context(), time.Hour)
		defer cancel()
		stopped := make(chan struct{})
		context.AfterFunc(child, func() { close(stopped) })
		store.set(hang, opExtend)
		<-stopped
		wantErr(t, context.Cause(child), core.ErrLost)
		wantErr(t, child.Err(), context.Canceled)
		wantErr(t, lease.Release(child), core.ErrLost)
	})
}
