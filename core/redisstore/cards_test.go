package redisstore_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestCardsOfProcesses checks the entries and the cost of cards. A card costs a command
// when its Locker is created, one every 10 s, and one when the Locker is closed. A lock
// takes as many commands as without a card.
func TestCardsOfProcesses(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	locker := func(t *testing.T, s store.Store, opts ...core.Option) *core.Locker {
		t.Helper()
		l, err := core.New(s, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	await := func(t *testing.T, what string, is func(cards []store.Card) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			cards, err := r.direct.Cards(t.Context())
			if err == nil && is(cards) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: there are %+v (%v)", what, cards, err)
			}
		}
	}
	close := func(t *testing.T, l *core.Locker) {
		t.Helper()
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	t.Run("commands of a cycle", func(t *testing.T) {
		const cycles = 200
		isCard := func(q testserver.Request) bool { return strings.Contains(strings.Join(q.Args, " "), "{}cards") }
		cards := testserver.Match{If: isCard}
		others := testserver.Match{If: func(q testserver.Request) bool { return !isCard(q) && q.Name != "hello" && q.Name != "client" }}
		var cost [2]int
		for i, opts := range [2][]core.Option{nil, {core.WithCard(store.Card{Service: "orders"})}} {
			r.proxy.Forget()
			start := time.Now()
			l := locker(t, r.store, opts...)
			if opts != nil {
				await(t, "the card", func(cards []store.Card) bool { return len(cards) == 1 })
			}
			before := 0
			for n := range 1 + cycles {
				if n == 1 { // the first cycle uses a new connection
					before = r.proxy.Count(others)
				}
				lease, err := l.Acquire(t.Context(), "cycle:1")
				if err != nil {
					t.Fatal(err)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			cost[i] = r.proxy.Count(others) - before
			close(t, l)
			// A script that the server does not know yet needs a second command.
			most := 0
			if opts != nil {
				most = 4 + int(time.Since(start)/(10*time.Second))
			}
			if n := r.proxy.Count(cards); n > most || opts != nil && n < 2 {
				t.Errorf("%d commands for cards, want at most %d", n, most)
			}
		}
		for i, with := range []string{"without", "with"} {
			// On a busy machine, some holds are extended and some requests are sent
			// twice.
			if n := cost[i]; n < 3*cycles || n > 3*cycles+cycles/4 {
				t.Errorf("%d cycles %s a card: got %d commands, want %d", cycles, with, n, 3*cycles)
			}
		}
	})
	t.Run("holds and waits of two processes", func(t *testing.T) {
		a := locker(t, r.store, core.WithCard(store.Card{Service: "a"}))
		b := locker(t, newStore(t, testclient.Redis(t, r.server.Addr)), core.WithCard(store.Card{Service: "b", Version: "2"}))
		lease, err := a.Acquire(t.Context(), "long:1")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() { got <- b.Do(t.Context(), "long:1", func(context.Context) error { return nil }) }()
		await(t, "what is held for more than 5 s", func(cards []store.Card) bool {
			if len(cards) != 2 {
				return false
			}
			has := func(service string, waiting bool) bool {
				for _, c := range cards {
					if c.Service == service && c.PID == os.Getpid() && len(c.Entries) == 1 {
						e := c.Entries[0]
						return e.Key == "long:1" && e.Waiting == waiting && (e.Hold == lease.ID()) != waiting && e.For >= 5*time.Second
					}
				}
				return false
			}
			return has("a", false) && has("b", true)
		})
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
		close(t, a)
		await(t, "after a has closed", func(cards []store.Card) bool { return len(cards) == 1 && cards[0].Service == "b" })
		close(t, b)
		await(t, "after both have closed", func(cards []store.Card) bool { return len(cards) == 0 })
	})
	t.Run("none with plain keys", func(t *testing.T) {
		plain := newStore(t, testclient.Redis(t, r.server.Addr), redisstore.WithPlainKeys())
		if _, err := core.New(plain, core.WithCard(store.Card{})); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("got %v, want %v", err, store.ErrUnsupported)
		}
	})
}
