package core_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
)

// everything causes each kind of event of a lease at least once. It returns texts that
// no event may contain: the secret part of the keys, and owners and tokens of leases.
func everything(t *testing.T, l *core.Locker, store *scripted) (secrets []string) {
	t.Helper()
	const key = "order:secret"
	get := func(o ...core.AcquireOption) *core.Lease {
		lease := acquire(t, t.Context(), l, key, o...)
		secrets = append(secrets, lease.Owner(), fmt.Sprint(lease.Token()))
		return lease
	}
	holder := get()
	time.AfterFunc(12*time.Second, func() { holder.Release(context.Background()) })
	waiter := get() // extended, busy, acquired, released
	_, err := l.Acquire(t.Context(), key, core.Wait(time.Second))
	wantErr(t, err, core.ErrBusy) // gave up
	store.set(loseReply, opRelease)
	// The lease is released with an error, and cleaned up.
	wantErr(t, waiter.Release(t.Context()), core.ErrUnavailable)
	store.set(nil, opRelease)
	time.Sleep(time.Second)
	long := get(core.MaxHold(time.Second)) // overrun
	store.set(loseRequest, opExtend)
	other := acquire(t, t.Context(), l, "order:secret2") // extend failed
	lossTime(t, other)                                   // lost
	lossTime(t, long)
	store.set(nil, opExtend)
	wantErr(t, long.Release(t.Context()), core.ErrLost)
	wantErr(t, other.Release(t.Context()), core.ErrLost)
	first := acquire(t, t.Context(), l, "order:secret3")
	got := make(chan *core.Lease, 1)
	go func() { got <- acquire(t, t.Context(), l, "order:secret3") }()
	synctest.Wait()
	release(t, first) // passed on
	release(t, <-got)
	return append(secrets, "secret", holder.Owner(), other.Owner(), fmt.Sprint(other.Token()))
}

func TestEvents(t *testing.T) {
	t.Parallel()
	// The observer is notified of each event once, with its Wait, Held and Err.
	sim(t, "each event once", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		everything(t, l, store)
		time.Sleep(time.Second)
		for kind, want := range map[core.Kind]int{
			core.Acquired: 6, core.Busy: 3, core.GaveUp: 1, core.Lost: 2, core.Released: 4, core.CleanedUp: 1, core.Overrun: 1, core.PassedOn: 1,
		} {
			events := seen.all(kind)
			if len(events) != want {
				t.Errorf("got %d of %s, want %d", len(events), kind, want)
			}
			for _, e := range events {
				if e.Name != "order" {
					t.Errorf("%s: the name is %q", kind, e.Name)
				}
			}
		}
		if n := len(seen.all(core.Extended)); n < 1 {
			t.Error("got no extension")
		}
		if failed := seen.all(core.ExtendFailed); len(failed) < 3 || !errors.Is(failed[0].Err, errBroken) {
			t.Errorf("got failed extensions %v", failed)
		}
		if e := seen.all(core.Acquired)[1]; e.Wait != 12*time.Second || e.Err != nil {
			t.Errorf("acquired after a wait: %+v, want 12s", e)
		}
		if e := seen.all(core.GaveUp)[0]; e.Wait != time.Second || !errors.Is(e.Err, core.ErrBusy) {
			t.Errorf("gave up: %+v, want 1s and ErrBusy", e)
		}
		if e := seen.all(core.Released)[0]; e.Held != 12*time.Second || e.Err != nil {
			t.Errorf("released: %+v, want 12s without error", e)
		}
		if e := seen.all(core.Released)[1]; !errors.Is(e.Err, core.ErrUnavailable) {
			t.Errorf("released without a confirmation: %+v", e)
		}
		for _, e := range seen.all(core.Lost) {
			if e.Held < 28*time.Second || !errors.Is(e.Err, core.ErrLost) {
				t.Errorf("lost: %+v", e)
			}
		}
		if e := seen.all(core.Overrun)[0]; e.Held < time.Second {
			t.Errorf("overrun: %+v", e)
		}
	})
	// The observer is not notified of an acquire that is refused as invalid before it
	// begins.
	sim(t, "refused before it began", func(t *testing.T) {
		seen := &recorder{}
		l, _ := setup(t, core.WithObserver(seen))
		_, err := l.Acquire(t.Context(), "order:{1}")
		wantErr(t, err, core.ErrInvalid)
		if kinds := seen.kinds(); kinds != "" {
			t.Errorf("got %s", kinds)
		}
	})
	// No event contains a key, an owner or a token.
	sim(t, "no secrets", func(t *testing.T) {
		seen := &recorder{}
		l, store := setup(t, core.WithObserver(seen))
		secrets := everything(t, l, store)
		synctest.Wait() // for the events of the last losses
		for _, e := range seen.events {
			asJSON, _ := json.Marshal(e)
			all := fmt.Sprintf("%+v %#v %v %s", e, e, e.Err, asJSON)
			if e.Err != nil {
				all += fmt.Sprintf(" %#v", e.Err)
			}
			for _, s := range secrets {
				if s != "0" && strings.Contains(all, s) {
					t.Errorf("the event %s shows %q", all, s)
				}
			}
		}
	})
	// An observer may use the Locker and its leases.
	sim(t, "observer uses the Locker", func(t *testing.T) {
		var l *core.Locker
		var mu sync.Mutex
		met := map[core.Kind]bool{}
		busybody := observerFunc(func(ctx context.Context, e core.Event) {
			mu.Lock()
			again := met[e.Kind]
			met[e.Kind] = true
			mu.Unlock()
			if again {
				return
			}
			if lease, ok := core.LeaseFromContext(ctx); ok {
				lease.Deadline()
				lease.Context().Err()
				lease.Release(ctx)
			}
			if lease, err := l.TryAcquire(context.WithoutCancel(ctx), "audit:"+fmt.Sprint(e.Kind)); err == nil {
				lease.Release(ctx)
			}
		})
		l, store := setup(t, core.WithObserver(core.Observers(busybody)))
		everything(t, l, store)
		lease := acquire(t, t.Context(), l, "order:1")
		if err := lease.Release(lease.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(met) < 9 {
			t.Errorf("got %d kinds", len(met))
		}
	})
}

type observerFunc func(context.Context, core.Event)

func (f observerFunc) Observe(ctx context.Context, e core.Event) { f(ctx, e) }

func TestObservers(t *testing.T) {
	t.Parallel()
	t.Run("order and nil observers", func(t *testing.T) {
		t.Parallel()
		var order []string
		named := func(name string) core.Observer {
			return observerFunc(func(_ context.Context, e core.Event) { order = append(order, name+" "+e.Kind.String()) })
		}
		core.Observers(nil, named("a"), nil, core.Observers(named("b")), core.Observers()).Observe(t.Context(), core.Event{Kind: core.Lost})
		if got := strings.Join(order, ", "); got != "a lost, b lost" {
			t.Errorf("got %s", got)
		}
	})
	sim(t, "no observers", func(t *testing.T) {
		l, _ := setup(t, core.WithObserver(core.Observers(nil)))
		release(t, acquire(t, t.Context(), l, "order:1"))
	})
}

func TestSlogObserver(t *testing.T) {
	t.Parallel()
	// A loss is logged as an error, failures as warnings, and the other events of a
	// lease at debug level. No secret is written.
	sim(t, "levels and secrets", func(t *testing.T) {
		var mu sync.Mutex
		var out bytes.Buffer
		log := slog.New(slog.NewJSONHandler(lockedWriter{&mu, &out}, &slog.HandlerOptions{Level: slog.LevelDebug}))
		l, store := setup(t, core.WithObserver(core.SlogObserver(log)))
		secrets := everything(t, l, store)
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		text := out.String()
		mu.Unlock()
		levels := map[string]bool{}
		for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
			var entry struct{ Level, Msg, Lock, Mode, Hold, Error string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Lock != "order" || entry.Mode != "exclusive" || len(entry.Hold) != 11 {
				t.Fatalf("%s: %v", line, err)
			}
			failed := ""
			if entry.Error != "" {
				failed = " with an error"
			}
			levels[entry.Msg+failed+": "+entry.Level] = true
		}
		for _, want := range []string{
			"lock acquired: DEBUG", "lock busy: DEBUG", "lock gave up with an error: DEBUG", "lock extended: DEBUG",
			"lock extend failed with an error: WARN", "lock lost with an error: ERROR", "lock released: DEBUG",
			"lock release failed with an error: WARN", "lock cleaned up: DEBUG", "lock overrun: WARN", "lock passed on: DEBUG",
		} {
			if !levels[want] {
				t.Errorf("%s is missing", want)
			}
			delete(levels, want)
		}
		if len(levels) > 0 {
			t.Errorf("not expected: %v", levels)
		}
		for _, s := range secrets {
			if s != "0" && strings.Contains(text, s) {
				t.Errorf("the log shows %q", s)
			}
		}
	})
	// LogKeys adds the key to each line about a lease, and to each line about a claim
	// that is cleaned up.
	sim(t, "LogKeys", func(t *testing.T) {
		var mu sync.Mutex
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(lockedWriter{&mu, &out}, &slog.HandlerOptions{Level: slog.LevelDebug}))
		l, store := setup(t, core.WithObserver(core.SlogObserver(log, core.LogKeys())))
		everything(t, l, store)
		adapter.Observe(t.Context(), l, core.Event{Kind: core.Misused, Name: "order"})
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for line := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
			if strings.Contains(line, " key=order:secret") == strings.Contains(line, "misused") {
				t.Error(line)
			}
		}
	})
	t.Run("nil option", func(t *testing.T) {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		core.SlogObserver(nil, nil)
	})
	// Without a logger, SlogObserver uses slog.Default.
	t.Run("no logger", func(t *testing.T) {
		var out bytes.Buffer
		before := slog.Default()
		defer slog.SetDefault(before)
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
		o := core.SlogObserver(nil)
		o.Observe(t.Context(), core.Event{Kind: core.Busy, Name: "order"}) // below the level
		o.Observe(t.Context(), core.Event{Kind: core.Lost, Name: "order", Held: time.Second})
		if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=ERROR msg="lock lost" lock=order held=1s`) {
			t.Errorf("got %s", got)
		}
	})
	t.Run("unfinished clean-up", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		o := core.SlogObserver(slog.New(slog.NewTextHandler(&out, nil)))
		o.Observe(t.Context(), core.Event{Kind: core.CleanedUp, Name: "order", Err: errBroken})
		if got := out.String(); !strings.Contains(got, `level=WARN msg="lock clean-up failed" lock=order error="connection broken"`) {
			t.Errorf("got %s", got)
		}
	})
}

type panicky struct{ events atomic.Int64 }

func (p *panicky) Observe(context.Context, core.Event) {
	p.events.Add(1)
	panic("broken metrics")
}

// TestObserver_Panics is not parallel, because it changes the default logger of the
// program.
func TestObserver_Panics(t *testing.T) {
	var mu sync.Mutex
	var out bytes.Buffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(lockedWriter{&mu, &out}, nil)))
	broken, seen := &panicky{}, &recorder{}
	synctest.Test(t, func(t *testing.T) {
		l, store := setup(t, core.WithObserver(core.Observers(broken, seen)))
		secrets := everything(t, l, store)
		time.Sleep(time.Second)
		if left := l.Left(); left != "" {
			t.Errorf("got %s, want nothing left", left)
		}
		mu.Lock()
		defer mu.Unlock()
		text := out.String()
		if n := int64(strings.Count(text, `msg="lockkit: observer panicked"`)); n == 0 || n != broken.events.Load() {
			t.Errorf("got %d lines for %d panics", n, broken.events.Load())
		}
		for _, part := range []string{"event=extended", "event=lost", "event=cleaned_up", "lock=order", `panic="broken metrics"`, "observer_test.go"} {
			if !strings.Contains(text, part) {
				t.Errorf("got no %s", part)
			}
		}
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("got the secret %s", secret)
			}
		}
	})
	if n := int64(strings.Count(seen.kinds(), ",") + 1); n != broken.events.Load() {
		t.Errorf("got %d events at the next observer, want %d", n, broken.events.Load())
	}
	alone := &panicky{}
	synctest.Test(t, func(t *testing.T) {
		l, store := setup(t, core.WithObserver(alone))
		everything(t, l, store)
	})
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// TestLosses_Logged is not parallel, because it changes the default logger of the
// program.
func TestLosses_Logged(t *testing.T) {
	for name, c := range map[string]struct {
		opts []core.Option
		want int
	}{
		"default observer":     {nil, 1},
		"no observer":          {[]core.Option{core.WithObserver(nil)}, 0},
		"own observer":         {[]core.Option{core.WithObserver(&recorder{})}, 0},
		"last observer counts": {[]core.Option{core.WithObserver(&recorder{}), core.WithObserver(nil)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var out bytes.Buffer
			before := slog.Default()
			defer slog.SetDefault(before)
			slog.SetDefault(slog.New(slog.NewTextHandler(lockedWriter{&mu, &out}, &slog.HandlerOptions{Level: slog.LevelDebug})))
			synctest.Test(t, func(t *testing.T) {
				l, store := setup(t, c.opts...)
				everything(t, l, store) // two leases are lost
				time.Sleep(time.Second)
			})
			mu.Lock()
			defer mu.Unlock()
			text := out.String()
			if got := strings.Count(text, "\n"); got != 2*c.want || got != strings.Count(text, `level=ERROR msg="lock lost" lock=order mode=exclusive hold=`) {
				t.Errorf("logged:\n%s", text)
			}
			if strings.Contains(text, "secret") {
				t.Errorf("it shows a key:\n%s", text)
			}
		})
	}
}
