package storetest

import (
	"crypto/rand"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

var cardCases = []testCase{
	{"card shown in every process", []Feature{Carding}, func(e *env) {
		c := e.card()
		e.put(e.store, c, e.long)
		e.showsCard(e.store, c)
		e.showsCard(e.other, c)
	}},
	{"card replaces the last one", []Feature{Carding}, func(e *env) {
		a, b := e.card(), e.card()
		e.put(e.store, a, e.long)
		e.put(e.other, b, e.long)
		a.Entries = []store.CardEntry{{Name: "other", Hold: store.HoldID("x"), For: time.Hour, Waiting: true}}
		e.put(e.store, a, e.long)
		e.showsCard(e.other, a)
		e.showsCard(e.store, b)
	}},
	{"cards in order of process", []Feature{Carding}, func(e *env) {
		for range 5 {
			e.put(e.store, e.card(), e.long)
		}
		var order []string
		for _, c := range e.cards(e.other) {
			order = append(order, c.Process)
		}
		if len(order) < 5 || !slices.IsSorted(order) || len(slices.Compact(slices.Clone(order))) != len(order) {
			e.Errorf("cards of %q, want each of 5 once and in order", order)
		}
	}},
	{"card expires", []Feature{Carding}, func(e *env) {
		a, b := e.card(), e.card()
		e.put(e.store, a, e.units(3))
		e.put(e.store, b, e.long)
		e.put(e.other, a, e.units(1)) // replaces the card, and so shortens the card's TTL
		e.outlive(e.units(1))
		for _, c := range e.cards(e.other) {
			if c.Process == a.Process {
				e.Error("a card is shown after its end")
			}
		}
		e.showsCard(e.store, b)
	}},
	{"card with a longer TTL", []Feature{Carding}, func(e *env) {
		c := e.card()
		e.put(e.store, c, e.units(1))
		e.put(e.store, c, e.long)
		e.sleep(e.units(4))
		e.showsCard(e.other, c)
	}},
	{"long card is stored whole", []Feature{Carding}, func(e *env) {
		c := e.card()
		for range 1000 {
			c.Entries = append(c.Entries, store.CardEntry{Name: "order", Hold: store.HoldID(rand.Text()), Key: `"\t{}'` + rand.Text(), For: time.Second})
		}
		e.put(e.store, c, e.long)
		e.showsCard(e.other, c)
	}},
	{"cards are no locks", []Feature{Carding, Inspecting}, func(e *env) {
		c := e.card()
		c.Process = strings.ReplaceAll(e.key, ":", "-")
		e.put(e.store, c, e.long)
		e.walk(50, func(s store.State) {
			if strings.Contains(s.Key, c.Process) || s.Key == "" {
				e.Errorf("list: there is a key %q", s.Key)
			}
		})
		e.isFree()
	}},
	{"invalid card is refused", []Feature{Carding}, func(e *env) {
		k := e.keeper(e.store)
		for what, change := range map[string]func(c *store.Card){
			"no process":       func(c *store.Card) { c.Process = "" },
			"a long process":   func(c *store.Card) { c.Process = strings.Repeat("p", 65) },
			"a process of two": func(c *store.Card) { c.Process = "a b" },
			"a card too long":  func(c *store.Card) { c.Version = strings.Repeat("v", store.MaxCard) },
		} {
			c := e.card()
			change(&c)
			if err := k.Put(e.Context(), c, e.long); !errors.Is(err, store.ErrInvalid) {
				e.Errorf("%s: got %v, want %v", what, err, store.ErrInvalid)
			}
		}
		for _, ttl := range []time.Duration{0, -1, store.MaxKeep + 1} {
			if err := k.Put(e.Context(), e.card(), ttl); !errors.Is(err, store.ErrInvalid) {
				e.Errorf("for %v: got %v, want %v", ttl, err, store.ErrInvalid)
			}
		}
	}},
}

func (e *env) card() store.Card {
	return store.Card{
		Process: rand.Text()[:8], Service: "orders", Version: "1.2.3", Host: "host-1", PID: 4711,
		Start: time.Unix(1_700_000_000, 0).UTC(),
		Entries: []store.CardEntry{
			{Name: "order", Hold: store.HoldID(rand.Text()), Key: "order:" + rand.Text(), Trace: "4bf92f3577b34da6a3ce929d0e0e4736", For: 6 * time.Second},
		},
	}
}

func (e *env) keeper(s store.Store) store.Cards {
	e.Helper()
	k, ok := s.(store.Cards)
	if !ok {
		e.Fatalf("%T is no store.Cards", s)
	}
	return k
}

func (e *env) put(s store.Store, c store.Card, ttl time.Duration) {
	e.Helper()
	if err := e.keeper(s).Put(e.Context(), c, ttl); err != nil {
		e.Fatalf("put: %v", err)
	}
}

func (e *env) cards(s store.Store) []store.Card {
	e.Helper()
	cards, err := e.keeper(s).Cards(e.Context())
	if err != nil {
		e.Fatalf("cards: %v", err)
	}
	return cards
}

// showsCard reads the cards of s, and fails the case unless want is among them.
func (e *env) showsCard(s store.Store, want store.Card) {
	e.Helper()
	for _, c := range e.cards(s) {
		if c.Process != want.Process {
			continue
		}
		if !reflect.DeepEqual(c, want) {
			e.Errorf("the card is %+v, want %+v", c, want)
		}
		return
	}
	e.Error("the card is not shown")
}

func withoutCarding(e *env) {
	k, ok := e.store.(store.Cards)
	if !ok {
		return
	}
	if err := k.Put(e.Context(), e.card(), e.long); !errors.Is(err, store.ErrUnsupported) {
		e.Errorf("put: got %v, want %v", err, store.ErrUnsupported)
	}
	if err := k.Put(e.Context(), store.Card{}, 0); !errors.Is(err, store.ErrUnsupported) {
		e.Errorf("put of what no store keeps: got %v, want %v", err, store.ErrUnsupported)
	}
	if _, err := k.Cards(e.Context()); !errors.Is(err, store.ErrUnsupported) {
		e.Errorf("cards: got %v, want %v", err, store.ErrUnsupported)
	}
}
