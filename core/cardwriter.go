package core

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockkit/lockkit/core/store"
)

const (
	maxLabel = 128 // the maximum length of Service and of Version, in bytes
	maxTrace = 64

	maxEntries = 1000
)

// cardWriter writes the card of a Locker's process.
type cardWriter struct {
	locker *Locker
	store  store.Cards
	card   Card // without entries

	ctx    context.Context // the context of the calls to the store
	cancel context.CancelFunc
	over   context.Context // done when the writer has to stop
	end    context.CancelFunc
	ended  chan struct{} // closed when run has returned
}

// start checks the card of WithCard, and starts the goroutine that writes it.
func (w *cardWriter) start() error {
	c := &w.card
	if c.Process != "" || c.Host != "" || c.PID != 0 || !c.Start.IsZero() || c.Entries != nil {
		return fmt.Errorf("WithCard: a field is set that the Locker sets (all except Service, Version and Trace): %w", ErrInvalid)
	}
	if !printable(c.Service, maxLabel) || !printable(c.Version, maxLabel) {
		return fmt.Errorf("WithCard: Service or Version is not printable UTF-8 (at most %d bytes): %w", maxLabel, ErrInvalid)
	}
	store, ok := w.locker.store.(store.Cards)
	// A Put with a zero TTL sends nothing.
	if !ok || errors.Is(store.Put(context.Background(), Card{}, 0), ErrUnsupported) {
		return fmt.Errorf("WithCard: the store has no cards: %w", ErrUnsupported)
	}
	w.store = store
	c.Process, c.PID, c.Start = w.locker.process, os.Getpid(), time.Now()
	c.Host, _ = os.Hostname() // a card without a host is better than no card
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.over, w.end = context.WithCancel(context.Background())
	w.ended = make(chan struct{})
	go w.run()
	return nil
}

func (w *cardWriter) run() {
	defer close(w.ended)
	w.put(nil, cardTTL) // no hold or waiter is old enough yet
	tick := time.NewTicker(cardEvery)
	defer tick.Stop()
	for {
		select {
		case <-w.over.Done():
			w.put(nil, time.Millisecond) // replaces the card by one that expires at once
			return
		case <-tick.C:
		}
		w.put(w.entries(), cardTTL)
	}
}

func (w *cardWriter) put(entries []store.CardEntry, ttl time.Duration) {
	ctx, cancel := context.WithTimeout(w.ctx, cardLimit)
	defer cancel()
	c := w.card
	c.Entries = entries
	_ = w.store.Put(ctx, c, ttl)
}

// stop stops the writer, which removes the card, and reports whether the writer stopped
// before ctx was done. If ctx is done first, stop cancels the writer's calls, and the
// writer stops in the background.
func (w *cardWriter) stop(ctx context.Context) bool {
	if w == nil {
		return true
	}
	w.end()
	defer w.cancel()
	return done(ctx, w.ended)
}

// entries returns the entries of the card: the leases and waiting acquires that are at
// least as old as cardFrom, the oldest first. It returns at most maxEntries entries,
// and no more than the card has room for. A lease has an entry for each of its keys. A
// waiting acquire has one entry, with the key of its call.
func (w *cardWriter) entries() (all []store.CardEntry) {
	bare, err := json.Marshal(w.card)
	if err != nil {
		return nil
	}
	room := store.MaxCard - len(bare) - len(`,"entries":[]`)
	for _, s := range w.locker.roster.longest(cardFrom, maxEntries, w.locker.now()) {
		l := s.lease
		holds := []*hold{{key: l.key}}
		if !s.waiting {
			holds = l.holds // the holds do not change after the acquire
		}
		e := store.CardEntry{Name: l.name, Mode: l.opts.mode.String(), Hold: l.ID(), Trace: w.trace(l.ctx.Context), Waiting: s.waiting, For: s.age}
		for _, h := range holds {
			e.Key = h.key
			text, err := json.Marshal(e)
			room -= len(text) + len(",")
			if err != nil || room < 0 || len(all) == maxEntries {
				return all
			}
			all = append(all, e)
		}
	}
	return all
}

// trace returns the result of the user's Trace for ctx. It returns "" if Trace panics,
// so that the process does not exit. It also returns "" for a text that is not
// printable or longer than maxTrace.
func (w *cardWriter) trace(ctx context.Context) (id string) {
	if w.card.Trace == nil {
		return ""
	}
	defer func() { _ = recover() }() // id is then ""
	if text := w.card.Trace(ctx); printable(text, maxTrace) {
		id = text
	}
	return id
}

// printable reports whether s is UTF-8 without control characters, and is not longer
// than the limit most, in bytes.
func printable(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
