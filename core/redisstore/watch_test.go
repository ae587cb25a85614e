package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// soon limits how long a test waits for an event that should come at once.
const soon = 20 * time.Second

func watch(t testing.TB, s *redisstore.Store, c store.Claim) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ch, err := s.Watch(ctx, c)
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	return ch
}

func wakes(t testing.TB, ch <-chan struct{}) {
	t.Helper()
	select {
	case _, ok := <-ch:
		if !ok {
			t.Fatal("the watch broke")
		}
	case <-time.After(soon):
		t.Fatal("nobody was woken")
	}
}

func breaks(t testing.TB, ch <-chan struct{}) {
	t.Helper()
	select {
	case _, ok := <-ch:
		if ok {
			t.Fatal("woken, want the watch to break")
		}
	case <-time.After(soon):
		t.Fatal("the watch did not break")
	}
}

// handedOver fails the test unless a release through one store wakes a waiter of the
// other store.
func handedOver(t testing.TB, holder, waiter *redisstore.Store) {
	t.Helper()
	c := claimed()
	w := claimOf(c.Key)
	w.Wait = true
	acquire(t, holder, c)
	ch := watch(t, waiter, w)
	if _, err := waiter.Acquire(context.Background(), w); !errors.Is(err, store.ErrBusy) {
		t.Fatalf("acquire: got %v, want busy", err)
	}
	release(t, holder, c)
	wakes(t, ch)
	acquire(t, waiter, w)
	release(t, waiter, w)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	t.Run("thousands share one subscription", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, testserver.StartRedis(t), nil)
		handedOver(t, r.direct, r.store)
		before := runtime.NumGoroutine()
		for range 5000 {
			watch(t, r.store, claimed())
		}
		// Other tests start and end some goroutines in the meantime.
		if n := runtime.NumGoroutine(); n > before+1000 {
			t.Errorf("%d goroutines, were %d", n, before)
		}
		if n := r.proxy.Count(testserver.Match{Command: "subscribe"}); n != 1 {
			t.Errorf("subscribed %d times", n)
		}
		handedOver(t, r.direct, r.store)
	})
	t.Run("no subscription before first watch", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, testserver.StartRedis(t), nil)
		acquire(t, r.store, claimed())
		if n := r.proxy.Count(testserver.Match{Command: "subscribe"}); n != 0 {
			t.Errorf("subscribed %d times", n)
		}
	})
	t.Run("killed connection", func(t *testing.T) { // hazard 39
		t.Parallel()
		r := newRig(t, testserver.StartRedis(t), nil)
		for range 5 {
			a, b := watch(t, r.store, claimed()), watch(t, r.store, claimed())
			if n, err := r.asks.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Result(); err != nil || n < 1 {
				t.Fatalf("killed %d connections, error %v", n, err)
			}
			breaks(t, a)
			breaks(t, b)
			handedOver(t, r.direct, r.store)
		}
	})
	t.Run("silent connection", func(t *testing.T) { // hazard 39
		t.Parallel()
		r := newRig(t, testserver.StartRedis(t), nil)
		handedOver(t, r.direct, r.store)
		ch := watch(t, r.store, claimed())
		start := time.Now()
		r.proxy.Partition()
		breaks(t, ch)
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("that took %v", took)
		}
		r.proxy.Heal()
		testserver.Eventually(t, soon, "a watch can be opened again", func() bool {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := r.store.Watch(ctx, claimed())
			return err == nil
		})
		handedOver(t, r.direct, r.store)
	})
	t.Run("a quiet watch does not break", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, testserver.StartRedis(t), nil)
		ch := watch(t, r.store, claimed())
		select {
		case _, ok := <-ch:
			t.Errorf("the channel received, open: %v", ok)
		case <-time.After(8 * time.Second):
		}
		if n := r.proxy.Count(testserver.Match{Command: "ping"}); n < 1 {
			t.Errorf("%d pings", n)
		}
		handedOver(t, r.direct, r.store)
	})
	t.Run("restarted server", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, testserver.StartRedis(t), nil)
		ch := watch(t, r.store, claimed())
		r.server.RestartEmpty()
		breaks(t, ch)
		testserver.Eventually(t, soon, "a watch can be opened again", func() bool {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := r.store.Watch(ctx, claimed())
			return err == nil
		})
		testserver.Eventually(t, soon, "the server serves again", func() bool { return r.asks.Ping(t.Context()).Err() == nil })
		handedOver(t, r.direct, r.store)
	})
	t.Run("unconfirmed watch", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, testserver.StartRedis(t), nil)
		f := r.proxy.Inject(testserver.Match{Command: "subscribe"}, testserver.DropRequest)
		start := time.Now()
		_, err := r.store.Watch(t.Context(), claimed())
		wantIs(t, "watch", err, store.ErrUnavailable)
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("that took %v", took)
		}
		f.Await(t)
		handedOver(t, r.direct, r.store)
	})
	t.Run("dead server", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		s := newStore(t, testclient.Redis(t, server.Addr))
		server.Kill()
		_, err := s.Watch(t.Context(), claimed())
		wantIs(t, "watch", err, store.ErrUnavailable)
	})
	t.Run("Close leaves holds alone", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		client := testclient.Redis(t, server.Addr)
		s, err := redisstore.New(client)
		if err != nil {
			t.Fatal(err)
		}
		c := claimed()
		acquire(t, s, c)
		ch := watch(t, s, claimed())
		for range 2 {
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		breaks(t, ch)
		_, err = s.Watch(t.Context(), claimed())
		wantIs(t, "watch", err, store.ErrClosed)
		if err := extend(s, c); err != nil {
			t.Error(err)
		}
		release(t, s, c)
		if err := client.Ping(t.Context()).Err(); err != nil {
			t.Errorf("the client was closed: %v", err)
		}
		testserver.Eventually(t, soon, "the subscription is gone", func() bool {
			return len(client.PubSubChannels(t.Context(), "*").Val()) == 0
		})
	})
	t.Run("unreachable waiter is passed over", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		s, dead := newStore(t, testclient.Redis(t, server.Addr)), newStore(t, testclient.Redis(t, server.Addr))
		c := claimed()
		acquire(t, s, c)
		for range 20 { // as from a process that has crashed
			w := claimOf(c.Key)
			w.Wait = true
			_, _ = dead.Acquire(t.Context(), w)
		}
		w := claimOf(c.Key)
		w.Wait = true
		ch := watch(t, s, w)
		_, err := s.Acquire(t.Context(), w)
		wantIs(t, "acquire", err, store.ErrBusy)
		release(t, s, c)
		wakes(t, ch)
	})
	t.Run("user without the right to publish", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		as := login(t, server, "quiet", "~*", "resetchannels", "+@all")
		s := newStore(t, testclient.Redis(t, server.Addr, as))
		c := claimed()
		w := claimOf(c.Key)
		w.Wait = true
		acquire(t, s, c)
		_, err := s.Acquire(t.Context(), w)
		wantIs(t, "acquire", err, store.ErrBusy)
		release(t, s, c)
		acquire(t, s, w)
		_, err = s.Watch(t.Context(), w)
		wantIs(t, "watch", err, store.ErrUnavailable)
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "+publish") {
			t.Errorf("check: got %v, want one that names the right", err)
		}
	})
}

// TestWakeUps_Hints publishes many wake-ups of one watch, between messages that name
// no watch. The watch receives, and later wake-ups still arrive.
func TestWakeUps_Hints(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	watch(t, r.store, claimed())
	channels := r.asks.PubSubChannels(t.Context(), "lk2:wake:*").Val()
	if len(channels) != 1 {
		t.Fatalf("channels are %q", channels)
	}
	c := claimed()
	ch := watch(t, r.store, c)
	for i := range 100 {
		for _, text := range []string{"", "nonsense", stored(c), stored(c) + " other", fmt.Sprint(stored(claimed()), " ", c.Lease)} {
			if err := r.asks.Publish(t.Context(), channels[0], text).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.asks.Publish(t.Context(), channels[0], stored(c)+" "+c.Lease).Err(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			wakes(t, ch)
		}
	}
	wakes(t, ch)
	handedOver(t, r.direct, r.store)
}
