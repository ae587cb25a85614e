package core

import (
	"context"
	"log/slog"
	"time"
)

// Kind says what an Event tells.
type Kind int

// The kinds of events.
const (
	// Acquired: a lease was granted, after Wait. It ends by one Lost or one
	// Released.
	Acquired Kind = iota + 1
	// Busy: the first attempt found the key busy; the caller waits, or gives up.
	Busy
	// GaveUp: an acquire ended without a lease, after Wait, with Err.
	GaveUp
	// Extended: the watchdog extended a lease.
	Extended
	// ExtendFailed: an attempt to extend a lease failed with Err; it is tried
	// again while the lease lasts.
	ExtendFailed
	// Lost: a lease was lost after Held; its context has ended. When it is given
	// back later, nothing is told.
	Lost
	// Released: a lease that was not lost was given back after Held; Err if the
	// store did not confirm it, or no longer had it.
	Released
	// PassedOn: the hold of a released lease went straight to a waiter of this
	// process.
	PassedOn
	// CleanedUp: a claim of unknown outcome was given back; with Err, it could
	// not be for its whole TTL, and a minute at least. Or a run was finished or
	// withdrawn after its lease had been given back; with Err, the store did not
	// confirm that, or another run had begun. Or the answer of a run whose lease
	// had been lost is not saved, since another run had begun; then with Err.
	CleanedUp
	// Overrun: a lease was held for longer than MaxHold; it is not extended any
	// more.
	Overrun
	// Answered: a Begin found a finished record, after Wait.
	Answered
	// Misused: an adapter was set up in a way that cannot work; Err says how.
	Misused
	// NodeOut: a node of a store that is made of several does not count, because of
	// Err. NodeBack: it counts again. Name is the node's, "node-0" for the first.
	NodeOut
	NodeBack
	// RanUnlocked: work runs without its lock, which its adapter was told to allow, since
	// the store could not be asked; Err says why.
	RanUnlocked
)

var kindNames = [...]string{
	Acquired: "acquired", Busy: "busy", GaveUp: "gave up", Extended: "extended", ExtendFailed: "extend failed",
	Lost: "lost", Released: "released", PassedOn: "passed on", CleanedUp: "cleaned up", Overrun: "overrun",
	Answered: "answered", Misused: "misused", NodeOut: "node out", NodeBack: "node back",
	RanUnlocked: "unlocked",
}

// String is the kind in words, "gave up" for GaveUp.
func (k Kind) String() string {
	if k <= 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// Event is one thing that happened to a lock. It holds the lock's static name
// and never a key, an owner or a token, so that it can label a metric.
type Event struct {
	Kind Kind
	Name string
	Wait time.Duration // Acquired, GaveUp, Answered: how long the acquire took
	Held time.Duration // Lost, Released, Overrun: since the grant
	Err  error
}

// Observer is told what happens to locks: for metrics, logs and traces.
//
// Observe is called on the path of the lock, by several goroutines at once, and
// never under a mutex of the Locker. It must return quickly. ctx is that of the
// acquire, or of the release; it may have ended.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Observers is an Observer that tells each of o, in order. Nils are left out.
func Observers(o ...Observer) Observer {
	var all fanOut
	for _, x := range o {
		if x != nil {
			all = append(all, x)
		}
	}
	return all
}

type fanOut []Observer

func (f fanOut) Observe(ctx context.Context, e Event) {
	for _, o := range f {
		o.Observe(ctx, e)
	}
}

// SlogObserver is an Observer that writes to log, or to slog.Default if log is
// nil: a lost lease as an error; a failed extension or release, an overrun, an
// unfinished clean-up, a misuse, a node that is out and work without its lock as
// warnings; a node that is back as information; everything else at debug level.
func SlogObserver(log *slog.Logger) Observer { return slogObserver{log} }

type slogObserver struct{ log *slog.Logger }

func (o slogObserver) Observe(ctx context.Context, e Event) {
	log := o.log
	if log == nil {
		log = slog.Default()
	}
	level := slog.LevelDebug
	switch {
	case e.Kind == Lost:
		level = slog.LevelError
	case e.Kind == ExtendFailed, e.Kind == Overrun, e.Kind == Misused, e.Kind == NodeOut, e.Kind == RanUnlocked, e.Err != nil && (e.Kind == Released || e.Kind == CleanedUp):
		level = slog.LevelWarn
	}
	if e.Kind == NodeBack {
		level = slog.LevelInfo
	}
	if !log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("lock", e.Name)}
	if e.Wait > 0 {
		attrs = append(attrs, slog.Duration("wait", e.Wait))
	}
	if e.Held > 0 {
		attrs = append(attrs, slog.Duration("held", e.Held))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", e.Err.Error()))
	}
	message := "lock " + e.Kind.String()
	switch {
	case e.Err == nil:
	case e.Kind == Released:
		message = "lock release failed"
	case e.Kind == CleanedUp:
		message = "lock clean-up failed"
	}
	log.LogAttrs(ctx, level, message, attrs...)
}
