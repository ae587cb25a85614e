package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

// cardStore is a store that counts the writes of cards.
type cardStore struct {
	*memstore.Store
	mu   sync.Mutex
	puts []time.Time
	put  func(ctx context.Context) error // called before each Put, unless nil; its error is Put's
}

func (s *cardStore) Put(ctx context.Context, c core.Card, ttl time.Duration) error {
	noMutex()
	s.mu.Lock()
	put := s.put
	if c.Process != "" {
		s.puts = append(s.puts, time.Now())
	}
	s.mu.Unlock()
	if put != nil {
		if err := put(ctx); err != nil {
			return err
		}
	}
	return s.Store.Put(ctx, c, ttl)
}

func (s *cardStore) set(put func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put = put
}

// card returns the only card, or the zero Card if want is 0. It fails the test unless
// the store has want cards.
func (s *cardStore) card(t *testing.T, want int) core.Card {
	t.Helper()
	cards, err := s.Cards(t.Context())
	if err != nil || len(cards) != want {
		t.Fatalf("%d cards (%v), want %d", len(cards), err, want)
	}
	if want == 0 {
		return core.Card{}
	}
	return cards[0]
}

func carded(t *testing.T, c core.Card) (*core.Locker, *cardStore) {
	t.Helper()
	store := &cardStore{Store: memstore.New()}
	return newLocker(t, store, core.WithCard(c)), store
}

type traceKey struct{}

func TestCard(t *testing.T) {
	t.Parallel()
	// The card describes its process, from the start until Close.
	sim(t, "process from start to Close", func(t *testing.T) {
		before := time.Now()
		l, store := carded(t, core.Card{Service: "payments", Version: "1.2"})
		synctest.Wait()
		host, _ := os.Hostname()
		for range 10 {
			c := store.card(t, 1)
			if len(c.Process) != 8 || c.Service != "payments" || c.Version != "1.2" || c.Host != host || c.PID != os.Getpid() ||
				!c.Start.Equal(before) || len(c.Entries) != 0 {
				t.Errorf("%+v", c)
			}
			time.Sleep(9 * time.Second)
		}
		synctest.Wait()
		store.mu.Lock()
		if len(store.puts) != 10 {
			t.Errorf("got %d writes in 90 s, want 10", len(store.puts))
		}
		store.mu.Unlock()
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Millisecond)
		store.card(t, 0)
	})
	sim(t, "same process as its holds", func(t *testing.T) {
		l, store := carded(t, core.Card{})
		synctest.Wait()
		lease := acquire(t, t.Context(), l, "order:1")
		if c := store.card(t, 1); !strings.HasPrefix(lease.Owner(), c.Process) {
			t.Errorf("the card is of %s", c.Process)
		}
		release(t, lease)
	})
	// The card has the holds and waits that are older than 5 s, oldest first, with
	// their traces.
	sim(t, "long holds and waits", func(t *testing.T) {
		l, s := carded(t, core.Card{Trace: func(ctx context.Context) string {
			noMutex()
			id, _ := ctx.Value(traceKey{}).(string)
			return id
		}})
		traced := func(id string) context.Context { return context.WithValue(t.Context(), traceKey{}, id) }
		a := acquire(t, traced("t1"), l, "order:1")
		time.Sleep(time.Second)
		got := make(chan *core.Lease)
		go func() { got <- acquire(t, traced("t2"), l, "order:1") }()
		time.Sleep(time.Second)
		two := acquire(t, traced("t3\n"), l, "pay:1", core.Also("pay:2"), core.Name("both"), core.Shared())
		time.Sleep(4 * time.Second) // until 6 s after the start
		young := acquire(t, t.Context(), l, "young:1")
		lost := acquire(t, t.Context(), l, "lost:1")
		time.Sleep(4 * time.Second) // until 10 s, when the card is written
		synctest.Wait()
		want := []store.CardEntry{
			{Name: "order", Mode: "exclusive", Hold: a.ID(), Key: "order:1", Trace: "t1", For: 10 * time.Second},
			{Name: "order", Mode: "exclusive", Key: "order:1", Trace: "t2", Waiting: true, For: 9 * time.Second},
			{Name: "both", Mode: "shared", Hold: two.ID(), Key: "pay:1", For: 8 * time.Second},
			{Name: "both", Mode: "shared", Hold: two.ID(), Key: "pay:2", For: 8 * time.Second},
		}
		entries := s.card(t, 1).Entries
		if len(entries) > 1 {
			want[1].Hold = entries[1].Hold // only the card has the ID of this hold
		}
		if !slices.Equal(entries, want) || entries[1].Hold == "" || entries[1].Hold == a.ID() {
			t.Errorf("got  %+v\nwant %+v", entries, want)
		}
		release(t, young)
		if err := s.Revoke(t.Context(), "lost:1", lost.ID(), time.Millisecond); err != nil {
			t.Fatal(err)
		}
		<-lost.Context().Done()
		release(t, a)
		next := <-got
		release(t, two)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if e := s.card(t, 1).Entries; len(e) != 1 || e[0].Hold != next.ID() || e[0].Waiting || e[0].Trace != "t2" {
			t.Errorf("got %+v, want what the second caller holds", e)
		}
		release(t, next)
		wantErr(t, lost.Release(t.Context()), core.ErrLost)
	})
	// Even after a hold was passed on, the entry of its lease has the hold's ID, and
	// the card has the process of the hold.
	sim(t, "hold that was passed on", func(t *testing.T) {
		l, store := carded(t, core.Card{})
		first := acquire(t, t.Context(), l, "order:1")
		got := make(chan *core.Lease)
		go func() { got <- acquire(t, t.Context(), l, "order:1") }()
		synctest.Wait()
		release(t, first)
		next := <-got
		time.Sleep(11 * time.Second)
		synctest.Wait()
		state, err := store.Look(t.Context(), "order:1")
		c := store.card(t, 1)
		if e := c.Entries; err != nil || len(e) != 1 || len(state.Holds) != 1 || state.Holds[0].ID != e[0].Hold || state.Holds[0].Process != c.Process {
			t.Errorf("the card is %+v, the store has %+v (%v)", c, state, err)
		}
		release(t, next)
	})
	// If the store fails or hangs, leases are not affected, and the card is stored
	// again afterwards.
	sim(t, "store fails or hangs", func(t *testing.T) {
		l, store := carded(t, core.Card{Trace: func(context.Context) string { panic("trace") }})
		lease := acquire(t, t.Context(), l, "order:1")
		synctest.Wait()
		var longest atomic.Int64
		store.set(func(ctx context.Context) error {
			start := time.Now()
			<-ctx.Done()
			longest.Store(max(longest.Load(), int64(time.Since(start))))
			return errors.Join(core.ErrUnavailable, ctx.Err())
		})
		time.Sleep(29 * time.Second)
		store.card(t, 1)
		time.Sleep(2 * time.Second)
		store.card(t, 0)
		if took := time.Duration(longest.Load()); took == 0 || took > 3*time.Second || l.Snapshot().Locks[0].Held != 1 || lease.Context().Err() != nil {
			t.Errorf("got a write of %v and %+v", took, l.Snapshot())
		}
		store.set(nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if c := store.card(t, 1); len(c.Entries) != 1 || c.Entries[0].Trace != "" {
			t.Errorf("%+v", c)
		}
		release(t, lease)
	})
	// A Close during a write returns soon after its context is done, and the card
	// expires.
	sim(t, "Close during a write", func(t *testing.T) {
		l, store := carded(t, core.Card{})
		synctest.Wait()
		store.set(func(ctx context.Context) error { <-ctx.Done(); return core.ErrUnavailable })
		time.Sleep(10 * time.Second)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, l.Close(ctx), context.DeadlineExceeded)
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("Close took %v", d)
		}
		store.card(t, 1)
		time.Sleep(30 * time.Second)
		store.card(t, 0)
	})
	// The card stays while Close waits for leases.
	sim(t, "card during Close", func(t *testing.T) {
		l, store := carded(t, core.Card{})
		lease := acquire(t, t.Context(), l, "order:1")
		closed := make(chan error)
		go func() { closed <- l.Close(context.Background()) }()
		time.Sleep(45 * time.Second)
		if e := store.card(t, 1).Entries; len(e) != 1 {
			t.Errorf("%+v", e)
		}
		release(t, lease)
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
	// If the card has no room for all leases, it has the oldest of them.
	sim(t, "oldest of many leases", func(t *testing.T) {
		l, s := carded(t, core.Card{Service: "s", Trace: func(context.Context) string { return strings.Repeat("<", 64) }})
		var leases []*core.Lease
		hold := func(name string, n int) {
			for i := range n {
				key := fmt.Sprintf("%s%d:%s%d", name, i%300, strings.Repeat("<", 400), i)
				leases = append(leases, acquire(t, t.Context(), l, key, core.TTL(time.Hour)))
			}
		}
		hold("old", 40)
		time.Sleep(time.Second)
		hold("new", 3000)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		c := s.card(t, 1)
		text, err := json.Marshal(c)
		if err != nil || len(text) > store.MaxCard || len(text) < store.MaxCard-4000 {
			t.Errorf("the card has %d bytes of %d (%v)", len(text), store.MaxCard, err)
		}
		for i, e := range c.Entries {
			if old := strings.HasPrefix(e.Name, "old"); old != (i < 40) {
				t.Fatalf("entry %d is of %s", i, e.Name)
			}
		}
		for _, lease := range leases {
			release(t, lease)
		}
	})
	sim(t, "thousand short entries", func(t *testing.T) {
		l, store := carded(t, core.Card{})
		var leases [1500]*core.Lease
		for i := range leases {
			leases[i] = acquire(t, t.Context(), l, fmt.Sprintf("n:%d", i), core.TTL(time.Hour))
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if n := len(store.card(t, 1).Entries); n != 1000 {
			t.Errorf("%d entries, want 1,000", n)
		}
		for _, lease := range leases {
			release(t, lease)
		}
	})
}

func TestCard_Refused(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]core.Card{
		"a process": {Process: "ABCDEFGH"}, "a host": {Host: "h"}, "a PID": {PID: 1}, "a start": {Start: time.Now()},
		"empty entries": {Entries: []store.CardEntry{}}, "a long service": {Service: strings.Repeat("s", 129)},
		"a version of two lines": {Version: "1\n2"}, "a service that is no text": {Service: "\xff"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, err := core.New(memstore.New(), core.WithCard(c))
			wantErr(t, err, core.ErrInvalid)
		})
	}
	t.Run("store without cards", func(t *testing.T) {
		t.Parallel()
		_, err := core.New(newScripted(memstore.New()), core.WithCard(core.Card{}))
		wantErr(t, err, core.ErrUnsupported)
	})
	t.Run("store set up without cards", func(t *testing.T) {
		t.Parallel()
		store := &cardStore{Store: memstore.New()}
		store.set(func(context.Context) error { return core.ErrUnsupported })
		_, err := core.New(store, core.WithCard(core.Card{}))
		wantErr(t, err, core.ErrUnsupported)
	})
}
