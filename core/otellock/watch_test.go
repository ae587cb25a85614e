package otellock_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/otellock"
)

func newLocker(t *testing.T, opts ...core.Option) *core.Locker {
	t.Helper()
	l, err := core.New(memstore.New(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = l.Close(ctx)
	})
	return l
}

func acquire(t *testing.T, l *core.Locker, key string, opts ...core.AcquireOption) *core.Lease {
	t.Helper()
	lease, err := l.TryAcquire(context.Background(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func wantGauges(t *testing.T, p *provider, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := p.collect(t); !slices.Equal(got, want) {
		t.Errorf("the gauges are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	sim := func(name string, fn func(t *testing.T)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, fn)
		})
	}

	sim("two Lockers are added up", func(t *testing.T) {
		tel, p := observed(t)
		a, b := newLocker(t), newLocker(t)
		defer tel.Watch(a)()
		defer tel.Watch(b)()
		wantGauges(t, p, "lockkit.cleanup.pending 0")

		first := acquire(t, a, "order:1")
		var all sync.WaitGroup
		all.Go(func() {
			lease, err := a.Acquire(context.Background(), "order:1")
			if err != nil {
				t.Error(err)
				return
			}
			_ = lease.Release(context.Background())
		})
		time.Sleep(2 * time.Second)
		second := acquire(t, b, "order:1")
		third := acquire(t, b, "order:2", core.Shared())
		time.Sleep(3 * time.Second)
		wantGauges(
			t, p,
			"lockkit.cleanup.pending 0",
			"lockkit.lease.active 2 lockkit.mode=exclusive lockkit.name=order",
			"lockkit.lease.active 1 lockkit.mode=shared lockkit.name=order",
			"lockkit.request.pending 1 lockkit.mode=exclusive lockkit.name=order",
			"lockkit.request.pending 0 lockkit.mode=shared lockkit.name=order",
			"lockkit.lease.age.max 5 lockkit.name=order",
			"lockkit.request.age.max 5 lockkit.name=order",
		)
		for _, lease := range []*core.Lease{first, second, third} {
			if err := lease.Release(context.Background()); err != nil {
				t.Error(err)
			}
		}
		all.Wait()
		wantGauges( // a name without leases is reported as 0, and not omitted
			t, p,
			"lockkit.cleanup.pending 0",
			"lockkit.lease.active 0 lockkit.mode=exclusive lockkit.name=order",
			"lockkit.lease.active 0 lockkit.mode=shared lockkit.name=order",
			"lockkit.request.pending 0 lockkit.mode=exclusive lockkit.name=order",
			"lockkit.request.pending 0 lockkit.mode=shared lockkit.name=order",
			"lockkit.lease.age.max 0 lockkit.name=order",
			"lockkit.request.age.max 0 lockkit.name=order",
		)
	})

	sim("lost lease is not active", func(t *testing.T) {
		tel, p := observed(t)
		l := newLocker(t, core.WithObserver(tel))
		defer tel.Watch(l)()
		lease := acquire(t, l, "order:1", core.NoRenew())
		wantGauges(
			t, p,
			"lockkit.cleanup.pending 0",
			"lockkit.lease.active 1 lockkit.mode=exclusive lockkit.name=order",
			"lockkit.request.pending 0 lockkit.mode=exclusive lockkit.name=order",
			"lockkit.lease.age.max 0 lockkit.name=order",
			"lockkit.request.age.max 0 lockkit.name=order",
		)
		<-lease.Context().Done()
		wantGauges(
			t, p,
			"lockkit.cleanup.pending 0",
			"lockkit.lease.active 0 lockkit.mode=exclusive lockkit.name=order",
			"lockkit.request.pending 0 lockkit.mode=exclusive lockkit.name=order",
			"lockkit.lease.age.max 0 lockkit.name=order",
			"lockkit.request.age.max 0 lockkit.name=order",
		)
	})

	sim("names are capped", func(t *testing.T) {
		tel, p := observed(t, otellock.MaxNames(1))
		tel.Observe(t.Context(), core.Event{Kind: core.Overrun, Name: "order"})
		l := newLocker(t)
		defer tel.Watch(l)()
		acquire(t, l, "account:1")
		acquire(t, l, "invoice:1")
		wantGauges(
			t, p,
			"lockkit.cleanup.pending 0",
			"lockkit.lease.active 2 lockkit.mode=exclusive lockkit.name=_OTHER",
			"lockkit.request.pending 0 lockkit.mode=exclusive lockkit.name=_OTHER",
			"lockkit.lease.age.max 0 lockkit.name=_OTHER",
			"lockkit.request.age.max 0 lockkit.name=_OTHER",
		)
	})

	sim("watched twice", func(t *testing.T) {
		tel, p := observed(t)
		l := newLocker(t)
		stop, again := tel.Watch(l), tel.Watch(l)
		acquire(t, l, "order:1")
		want := []string{
			"lockkit.cleanup.pending 0",
			"lockkit.lease.active 1 lockkit.mode=exclusive lockkit.name=order",
			"lockkit.request.pending 0 lockkit.mode=exclusive lockkit.name=order",
			"lockkit.lease.age.max 0 lockkit.name=order",
			"lockkit.request.age.max 0 lockkit.name=order",
		}
		wantGauges(t, p, want...)
		stop()
		stop()
		wantGauges(t, p, want...)
		again()
		wantGauges(t, p)
		defer tel.Watch(l)() // and again
		wantGauges(t, p, want...)
	})

	t.Run("nil", func(t *testing.T) {
		t.Parallel()
		tel, _ := observed(t)
		defer func() {
			if recover() == nil {
				t.Error("it is watched")
			}
		}()
		tel.Watch(nil)
	})
}

func TestWatch_NothingOfALease(t *testing.T) {
	t.Parallel()
	tel, p := observed(t, otellock.WithAllAcquires(), otellock.WithHoldSpans())
	l := newLocker(t, core.WithObserver(tel))
	defer tel.Watch(l)()
	ctx := recorded(t.Context())
	var secrets, seen []string
	for range 2 {
		lease, err := l.Acquire(ctx, "order:s3cret")
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, "s3cret", lease.ID(), lease.Owner(), strconv.FormatUint(lease.Token(), 10))
		if _, err := l.TryAcquire(ctx, "order:s3cret"); err == nil {
			t.Error("the key is not taken")
		}
		seen = append(seen, p.collect(t)...)
		if err := lease.Release(ctx); err != nil {
			t.Error(err)
		}
	}
	text := strings.Join(append(seen, p.take()...), "\n")
	if !strings.Contains(text, "span hold order") || !strings.Contains(text, "lockkit.lease.active 1") {
		t.Errorf("too little is measured: %s", text)
	}
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("%q is measured: %s", secret, text)
		}
	}
}
