package inspect_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

// mute is a Store that cannot be inspected.
type mute struct{ core.Store }

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	if _, err := inspect.New(nil); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
	if _, err := inspect.New(mute{memstore.New()}); !errors.Is(err, core.ErrUnsupported) {
		t.Errorf("a store that is no store.Inspector: %v", err)
	}
	if _, err := inspect.New(memstore.New(), nil); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("a nil option: %v", err)
	}
	t.Run("nil option of a Handler", func(t *testing.T) {
		in := newInspector(t, memstore.New())
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		inspect.Handler(in, nil)
	})
	for _, secret := range [][]byte{{}, make([]byte, 31)} {
		if _, err := inspect.New(memstore.New(), inspect.Secret(secret)); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("a secret of %d bytes: %v", len(secret), err)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	for _, key := range []string{
		"order:42", "order", ":42", "a b:1", "a.b_c-D9:1", strings.Repeat("n", 64) + ":1", strings.Repeat("n", 65) + ":1", "ö:1", "a:b:c",
	} {
		var observed string
		l, err := core.New(store, core.WithObserver(observe(func(e core.Event) { observed = e.Name })))
		if err != nil {
			t.Fatal(err)
		}
		acquire(t, l, key).Release(t.Context())
		l.Close(t.Context())
		if got := inspect.Name(key); got != observed || observed == "" {
			t.Errorf("%q has the name %q here and %q in events", key, got, observed)
		}
	}
}

type observe func(core.Event)

func (f observe) Observe(_ context.Context, e core.Event) { f(e) }

func TestDigests(t *testing.T) {
	t.Parallel()
	secret := make([]byte, 32)
	a, b := newInspector(t, memstore.New(), inspect.Secret(secret)), newInspector(t, memstore.New(), inspect.Secret(secret))
	clear(secret)
	other := newInspector(t, memstore.New())
	switch d := a.Digest("order:42"); {
	case d != b.Digest("order:42"):
		t.Error("two with one secret have two digests of a key")
	case d == a.Digest("order:43"):
		t.Error("two keys have one digest")
	case d == other.Digest("order:42"):
		t.Error("a digest can be made without the secret")
	case len(d) != 11:
		t.Errorf("a digest is %q", d)
	}
}

func TestLook_Cards(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s core.Store) {
		l := newLocker(t, s)
		held := acquire(t, l, "order:1")
		read := acquire(t, l, "stock:1", core.Shared())
		card := core.Card{Process: held.Owner()[:8], Service: "payments", Host: "host-7", PID: 42, Entries: []store.CardEntry{
			{Name: "order", Hold: held.ID(), Key: "order:1", Trace: "4bf92f", For: 7 * time.Second},
			{Name: "order", Hold: "waiter-1", For: 9 * time.Second, Waiting: true},
			{Name: "stock", Hold: read.ID(), For: time.Hour},
		}}
		if err := s.(store.Cards).Put(t.Context(), card, time.Minute); err != nil {
			t.Fatal(err)
		}
		in := newInspector(t, s)
		got, err := in.Look(t.Context(), "order:1")
		if err != nil || len(got.Holds) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if h := got.Holds[0]; got.Name != "order" || got.Digest != in.Digest("order:1") || h.ID != held.ID() ||
			h.Card == nil || h.Card.Host != "host-7" || h.Card.Entries != nil || h.Trace != "4bf92f" {
			t.Errorf("shown is %+v, card %+v", got, h.Card)
		}
		if empty, err := in.Look(t.Context(), "order:2"); err != nil || len(empty.Holds)+len(empty.Waiters) != 0 || empty.Run != nil {
			t.Errorf("a free key is %+v, %v", empty, err)
		}
		now, err := in.Now(t.Context())
		if err != nil || len(now.Held) != 2 || len(now.Waiting) != 1 || len(now.Processes) != 1 {
			t.Fatalf("%+v, %v", now, err)
		}
		if now.Held[0].Name != "stock" || now.Held[0].Digest != "" || now.Held[1].Digest != got.Digest || now.Held[0].Process.PID != 42 {
			t.Errorf("held for long is %+v", now.Held)
		}
		page, next, err := in.List(t.Context(), "", 100)
		for err == nil && next != "" {
			var more []inspect.Lock
			more, next, err = in.List(t.Context(), next, 100)
			page = append(page, more...)
		}
		if err != nil || len(page) != 2 {
			t.Errorf("listed is %+v, %v", page, err)
		}
	})
}

// TestLook_Process checks that Look finds a process's card before the card lists the
// hold. Look then returns data that only the card has.
func TestLook_Process(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, s core.Store) {
		l, other := newLocker(t, s), newLocker(t, s)
		held := acquire(t, l, "order:1")
		permit := acquire(t, l, "pool:1", core.Permits(1, 3))
		read := acquire(t, l, "stock:1", core.Shared())
		unknown := acquire(t, other, "order:2")
		process := held.Owner()[:8]
		put := func(c core.Card) {
			t.Helper()
			if err := s.(store.Cards).Put(t.Context(), c, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		put(core.Card{Process: process, Host: "host-7", PID: 42, Entries: []store.CardEntry{
			{Name: "pool", Mode: "permits", Hold: permit.ID(), For: 7 * time.Second},
		}})
		// A card's entry for the hold of another process is not trusted.
		put(core.Card{Process: "EVIL", Host: "evil", Entries: []store.CardEntry{
			{Name: "order", Mode: "shared", Hold: held.ID(), Trace: "evil", For: 7 * time.Hour},
		}})
		in := newInspector(t, s)
		look := func(key string) inspect.Hold {
			t.Helper()
			got, err := in.Look(t.Context(), key)
			if err != nil || len(got.Holds) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			return got.Holds[0]
		}
		if h := look("order:1"); h.Process != process || h.Card == nil || h.Card.Host != "host-7" || h.Trace != "" ||
			h.Age > time.Hour || h.Mode() != core.ModeExclusive || h.Kind() != "exclusive" {
			t.Errorf("shown is %+v, card %+v", h, h.Card)
		}
		if h := look("pool:1"); h.Card == nil || h.Mode() != core.ModePermits || h.Kind() != "1 permit" {
			t.Errorf("shown is %+v, card %+v", h, h.Card)
		}
		if h := look("stock:1"); h.Card == nil || h.Mode() != core.ModeShared || h.Kind() != "shared or a permit" {
			t.Errorf("shown is %+v, card %+v", h, h.Card)
		}
		if h := look("order:2"); h.Process != unknown.Owner()[:8] || h.Card != nil {
			t.Errorf("shown is %+v, card %+v", h, h.Card)
		}
		if err := read.Release(t.Context()); err != nil {
			t.Error(err)
		}
		acquire(t, l, "pool:2", core.Permits(2, 3))
		if h := look("pool:2"); h.Mode() != core.ModePermits || h.Kind() != "2 permits" {
			t.Errorf("shown is %+v", h)
		}
	})
}

// bare is a Store that implements Inspector and has no cards.
type bare struct {
	core.Store
	store.Inspector
}

func TestNowWithoutCards(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	in := newInspector(t, bare{store, store})
	if _, err := in.Now(t.Context()); !errors.Is(err, core.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
	take(t, store, claim("order:1"))
	if l, err := in.Look(t.Context(), "order:1"); err != nil || len(l.Holds) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestRevoke_HolderLearnsFirst checks that a revoked holder is notified before the next
// holder gets the key.
func TestRevoke_HolderLearnsFirst(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, store core.Store) {
		lease := acquire(t, newLocker(t, store), "order:1", core.TTL(3*time.Second))
		in := newInspector(t, store)
		next := make(chan *core.Lease, 1)
		var learned bool // at the time the next holder is granted the key
		go func() {
			other, _ := newLocker(t, store).Acquire(context.Background(), "order:1")
			learned = lease.Context().Err() != nil
			next <- other
		}()
		if err := in.Revoke(t.Context(), "order:1", lease.ID()); err != nil {
			t.Fatal(err)
		}
		if l, err := in.Look(t.Context(), "order:1"); err != nil || len(l.Holds) == 0 || l.Holds[0].ID != "" {
			t.Errorf("after a revoke there is %+v, %v", l, err)
		}
		if other := <-next; other == nil || !learned {
			t.Errorf("the next holder came, and the old one had learned of the loss: %v", learned)
		}
		if !errors.Is(context.Cause(lease.Context()), core.ErrLost) || !errors.Is(lease.Release(t.Context()), core.ErrLost) {
			t.Errorf("the holder got the cause %v", context.Cause(lease.Context()))
		}
		if err := in.Revoke(t.Context(), "order:1", lease.ID()); !errors.Is(err, core.ErrLost) {
			t.Errorf("a second revoke: %v", err)
		}
	})
}

func TestRelease_HolderLearnsLater(t *testing.T) {
	t.Parallel()
	onStores(t, func(t *testing.T, store core.Store) {
		lease := acquire(t, newLocker(t, store), "order:1", core.TTL(time.Minute))
		if err := newInspector(t, store).ReleaseNow(t.Context(), "order:1", lease.ID()); err != nil {
			t.Fatal(err)
		}
		if _, err := newLocker(t, store).TryAcquire(t.Context(), "order:1"); err != nil {
			t.Errorf("the key is not free: %v", err)
		}
		if lease.Context().Err() != nil {
			t.Error("the old holder learned of the loss before it asked")
		}
	})
}

// vague is a Store whose Revoke receives no answer.
type vague struct{ *memstore.Store }

var errVague = errors.New("no answer")

func (vague) Revoke(context.Context, string, string, time.Duration) error { return errVague }

func TestRevoke_ObserverPanics(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	in := newInspector(t, store, inspect.Observer(observe(func(core.Event) { panic("observer") })))
	lease := acquire(t, newLocker(t, store), "order:1")
	if err := in.Revoke(t.Context(), "order:1", lease.ID()); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestRevoke_Notified(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []core.Event
		var log strings.Builder
		seen := core.Observers(observe(func(e core.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}), core.SlogObserver(slog.New(slog.NewTextHandler(&log, nil)), core.LogKeys()))
		store := memstore.New()
		lease := acquire(t, newLocker(t, store), "order:secret")
		in := newInspector(t, store, inspect.Observer(seen))
		if err := in.Revoke(t.Context(), "order:secret", "nobody"); !errors.Is(err, core.ErrLost) || len(events) != 0 {
			t.Errorf("%v; got events of a hold that is not there: %v", err, events)
		}
		if err := in.Revoke(t.Context(), "order:secret", lease.ID()); err != nil {
			t.Fatal(err)
		}
		if len(events) != 1 || events[0].Kind != core.Revoked || events[0].Name != "order" || events[0].Hold() != lease.ID() || events[0].Err != nil {
			t.Errorf("got the events %+v", events)
		}
		if line := log.String(); !strings.Contains(line, "level=WARN") || !strings.Contains(line, "hold="+lease.ID()) || strings.Contains(line, "secret") {
			t.Errorf("the line is %s", line)
		}
		unheard := newInspector(t, vague{store}, inspect.Observer(seen))
		if err := unheard.ReleaseNow(t.Context(), "order:secret", "x"); !errors.Is(err, errVague) || len(events) != 2 || !errors.Is(events[1].Err, errVague) {
			t.Errorf("%v: got the events %+v", err, events)
		}
	})
}
