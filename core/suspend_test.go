package core_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
)

// laptop returns a Locker on a machine that can be suspended. The function suspend adds
// to the total time of suspensions that the Locker reads. suspend moves neither the
// monotonic clock nor the store's clock.
func laptop(t *testing.T, o ...core.Option) (l *core.Locker, store *scripted, suspend func(time.Duration)) {
	t.Helper()
	l, store = setup(t, o...)
	var asleep atomic.Int64
	asleep.Store(int64(3 * time.Hour)) // the machine was suspended before the test
	l.SetAsleep(func() time.Duration { return time.Duration(asleep.Load()) })
	return l, store, func(d time.Duration) { asleep.Add(int64(d)) }
}

// TestSuspension covers hazard 4 of PROOF.md.
func TestSuspension(t *testing.T) {
	t.Parallel()
	for name, o := range map[string][]core.AcquireOption{
		"a lease":      nil,
		"NoRenew":      opts(core.NoRenew()),
		"Shared":       opts(core.Shared()),
		"overrun":      opts(core.MaxHold(time.Millisecond)),
		"several keys": opts(core.Also("order:2", "order:3")),
		"shortest TTL": opts(core.TTL(100 * time.Millisecond)),
		"ten minutes":  opts(core.TTL(10 * time.Minute)),
	} {
		sim(t, name+" with first check", func(t *testing.T) {
			l, store, suspend := laptop(t)
			lease := acquire(t, t.Context(), l, "order:1", o...)
			time.Sleep(50 * time.Millisecond)
			wantHeldLease(t, lease)
			store.forget()
			suspend(10 * time.Minute)
			_, err := l.Acquire(lease.Context(), "order:1", o...)
			wantErr(t, err, core.ErrLost)
			if n := store.count(); n != 0 {
				t.Errorf("%d calls for a nested acquire, want none", n)
			}
			wantLost(t, lease)
			wantErr(t, lease.Extend(t.Context(), time.Hour), core.ErrLost)
			wantErr(t, lease.Release(t.Context()), core.ErrLost)
		})
		sim(t, name+" without a check", func(t *testing.T) {
			l, _, suspend := laptop(t)
			lease := acquire(t, t.Context(), l, "order:1", o...)
			time.Sleep(40 * time.Millisecond)
			suspend(10 * time.Minute)
			start := time.Now()
			lossTime(t, lease)
			if d := time.Since(start); d > time.Second {
				t.Errorf("got the loss %v after the machine ran again", d)
			}
			wantErr(t, lease.Release(t.Context()), core.ErrLost)
		})
	}
	sim(t, "Err reads the clocks", func(t *testing.T) {
		l, _, suspend := laptop(t)
		lease := acquire(t, t.Context(), l, "order:1")
		suspend(10 * time.Minute)
		if err := lease.Context().Err(); err != context.Canceled {
			t.Errorf("the context's error is %v", err)
		}
		wantErr(t, context.Cause(lease.Context()), core.ErrLost)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
	sim(t, "derived contexts", func(t *testing.T) {
		l, _, suspend := laptop(t)
		lease := acquire(t, t.Context(), l, "order:1")
		child, cancel := context.WithTimeout(lease.Context(), time.Hour)
		defer cancel()
		type key struct{}
		value := context.WithValue(lease.Context(), key{}, 1)
		suspend(10 * time.Minute)
		if err := child.Err(); err != nil { // a documented limit, see Lease.Context
			t.Errorf("got %v of a context that can be canceled by itself, want nil", err)
		}
		if err := value.Err(); err != context.Canceled {
			t.Errorf("got %v of a context with a value, want %v", err, context.Canceled)
		}
		wantErr(t, context.Cause(child), core.ErrLost)
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
	// If the extension hangs, the lease is lost within a second after the machine runs
	// again.
	sim(t, "extension hangs", func(t *testing.T) {
		l, store, suspend := laptop(t)
		store.set(hang, opExtend)
		lease := acquire(t, t.Context(), l, "order:1", core.TTL(time.Minute))
		for store.count(opExtend) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		suspend(time.Hour)
		start := time.Now()
		lossTime(t, lease)
		if d := time.Since(start); d > time.Second {
			t.Errorf("got the loss %v after the machine ran again", d)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
	// An extension during which the machine was suspended does not restore the trust.
	sim(t, "suspended during an extension", func(t *testing.T) {
		l, store, suspend := laptop(t)
		lease := acquire(t, t.Context(), l, "order:1")
		store.set(func(_ context.Context, _ int, do func() error) error {
			suspend(time.Minute)
			return do()
		}, opExtend)
		time.Sleep(11 * time.Second)
		wantLost(t, lease)
		if n := store.count(opExtend); n != 1 {
			t.Errorf("%d extensions, want one", n)
		}
		wantErr(t, lease.Release(t.Context()), core.ErrLost)
	})
	// If the grant is no longer trusted after a suspension during the request, the
	// claim is sent again.
	sim(t, "suspended during a grant", func(t *testing.T) {
		l, store, suspend := laptop(t)
		store.set(first(1, func(_ context.Context, _ int, do func() error) error {
			err := do()
			suspend(time.Minute)
			return err
		}), opAcquire)
		lease := acquire(t, t.Context(), l, "order:1")
		wantHeldLease(t, lease)
		if n := store.count(opAcquire); n != 2 {
			t.Errorf("asked %d times, want twice", n)
		}
		release(t, lease)
	})
	// A suspension shorter than the lease makes the deadline earlier by the same time,
	// until the next extension.
	sim(t, "nap moves the deadline", func(t *testing.T) {
		l, store, suspend := laptop(t)
		lease := acquire(t, t.Context(), l, "order:1")
		before := lease.Deadline()
		suspend(5 * time.Second)
		if d := before.Sub(lease.Deadline()); d != 5*time.Second {
			t.Errorf("the deadline is %v earlier, want 5s", d)
		}
		time.Sleep(time.Hour)
		wantHeldLease(t, lease)
		release(t, lease)
		if n := store.count(opExtend); n > 410 {
			t.Errorf("%d extensions in an hour", n)
		}
	})
	// Several short suspensions do not delay the end of the lease.
	sim(t, "many naps", func(t *testing.T) {
		for _, o := range [][]core.AcquireOption{opts(core.NoRenew()), opts(core.Also("order:2"))} {
			l, store, suspend := laptop(t)
			store.set(hang, opExtend)
			lease := acquire(t, t.Context(), l, "order:1", o...)
			start := time.Now()
			for range 3 {
				time.Sleep(3 * time.Second)
				suspend(4 * time.Second)
			}
			if d := lossTime(t, lease).Sub(start); d != core.Trust(30*time.Second)-12*time.Second {
				t.Errorf("got the loss after %v, want 12s earlier than %v", d, core.Trust(30*time.Second))
			}
			wantErr(t, lease.Release(t.Context()), core.ErrLost)
		}
	})
	// Noise between the clocks never makes the trust in a lease longer, and stops no
	// timer.
	sim(t, "noise between the clocks", func(t *testing.T) {
		for _, noise := range []time.Duration{time.Millisecond, 9 * time.Millisecond, 100 * time.Millisecond} {
			for range 200 {
				l, store := setup(t)
				l.SetAsleep(func() time.Duration { return rand.N(noise) })
				lease := acquire(t, t.Context(), l, "order:1", core.NoRenew(), core.TTL(2*time.Second))
				sent := store.sent(opAcquire)[0].at
				if d := lease.Deadline().Sub(sent); d > core.Trust(2*time.Second) {
					t.Fatalf("noise of %v: trusted for %v", noise, d)
				}
				if d := lossTime(t, lease).Sub(sent); d > core.Trust(2*time.Second)+time.Millisecond {
					t.Fatalf("noise of %v: lost after %v", noise, d)
				}
				wantErr(t, lease.Release(t.Context()), core.ErrLost)
			}
		}
	})
	t.Run("this machine in real time", func(t *testing.T) {
		t.Parallel()
		extended := make(chan struct{})
		var once sync.Once
		l, err := core.New(memStore(), core.WithObserver(observerFunc(func(_ context.Context, e core.Event) {
			if e.Kind == core.Extended {
				once.Do(func() { close(extended) })
			}
		}))) // with the real clocks of this machine
		if err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, t.Context(), l, "order:1", core.TTL(6*time.Second))
		select {
		case <-extended:
		case <-lease.Context().Done():
			t.Fatal("got a lost lease, want one that is extended")
		}
		wantHeldLease(t, lease)
		release(t, lease)
	})
}

// wallClock has the selectors that read the wall clock or strip the monotonic reading
// from a time. Through their results a lease would depend on a clock that can be set.
var wallClock = []string{
	"UTC", "Local", "In", "Unix", "UnixMilli", "UnixMicro", "UnixNano", "Round", "Truncate", "AddDate", "Date",
	"Parse", "Format", "MarshalText", "MarshalJSON", "MarshalBinary", "GobEncode", "GobDecode",
}

// strips returns the uses of wallClock in a source.
func strips(t *testing.T, name string, source any) (found []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(wallClock, sel.Sel.Name) {
			found = append(found, sel.Sel.Name)
		}
		return true
	})
	return found
}

// TestMonotonicTime covers hazard 3 of PROOF.md.
func TestMonotonicTime(t *testing.T) {
	t.Parallel()
	// The engine uses the selectors of wallClock only in the clock package.
	t.Run("engine without wall clock", func(t *testing.T) {
		t.Parallel()
		files, err := filepath.Glob("*.go")
		inner, _ := filepath.Glob("internal/*/*.go")
		files = append(files, inner...)
		if err != nil || len(files) == 0 {
			t.Fatal("no source found", err)
		}
		for _, f := range files {
			forStores := slices.Contains([]string{"keystate", "dialect"}, filepath.Base(filepath.Dir(f)))
			if strings.HasSuffix(f, "_test.go") || forStores {
				continue // these packages are for stores, which use the clock of their server
			}
			source, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			seen := 0
			for _, use := range strips(t, f, source) {
				// The clock package compares the wall clock with the monotonic clock.
				if f == filepath.Join("internal", "clock", "clock.go") && use == "UnixNano" && seen == 0 {
					seen++
					continue
				}
				t.Errorf("%s uses %s: leases follow the monotonic clock only", f, use)
			}
		}
	})
	for _, use := range []string{"time.Now().UTC()", "t.Round(0)", "time.Unix(0, n)", "t.UnixNano()", "time.Date(y, m, d)", "t.In(z)"} {
		t.Run(use, func(t *testing.T) {
			t.Parallel()
			if len(strips(t, "a.go", "package a; var x = "+use)) == 0 {
				t.Error("it does not")
			}
		})
	}
}
