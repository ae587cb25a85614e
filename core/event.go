package core

import (
	"context"
	"time"
)

// Kind says what an Event tells.
type Kind int

// The kinds of events. Event's documentation draws the life of a lease.
const (
	// Acquired: a lease was granted, after Wait. It ends by one Lost or one
	// Released.
	Acquired Kind = iota + 1
	// Busy: an acquire found the key taken, by the answer of the store or since other
	// callers of this process are before it. It waits, or gives up. Each acquire has at
	// most one.
	Busy
	// GaveUp: an acquire ended without a lease, after Wait, with Err.
	GaveUp
	// Extended: the watchdog extended a lease.
	Extended
	// ExtendFailed: an attempt to extend a lease failed with Err; it is tried
	// again while the lease lasts.
	ExtendFailed
	// Lost: a lease was lost after Held; its context has ended. When it is given
	// back later, only CleanedUp of its run can follow.
	Lost
	// Released: a lease that was not lost was given back after Held; Err if the
	// store did not confirm it, or no longer had it.
	Released
	// PassedOn: the hold of a lease that is being released went straight to a
	// waiter of this process.
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
	// Ran: a call of once was run, as Attempt; it waited for Wait and was held
	// for Held. With Err, the work failed, or its end could not be saved.
	Ran
	// Replayed: a call of once was answered, after Wait, with what Attempt left.
	Replayed
	// Refused: a call of once was neither run nor answered, after Wait; Err says
	// why: in progress, mismatch, unreplayable, indeterminate, the store, or work
	// that was taken back since it had not begun.
	Refused
	// Misused: an adapter was set up in a way that cannot work; Err says how.
	Misused
	// NodeOut: a node of a store that is made of several does not count, because of
	// Err. NodeBack: it counts again. Name is the node's, "node-0" for the first.
	NodeOut
	NodeBack
	// RanUnlocked: work runs without its lock, which its adapter was told to allow, since
	// the store could not be asked; Err says why.
	RanUnlocked
	// Revoked: an operator took a hold away, by package inspect; with Err, it is not
	// known whether it has ended. The process that had it tells Lost later.
	Revoked
)

var kindNames = [...]string{
	Acquired: "acquired", Busy: "busy", GaveUp: "gave_up", Extended: "extended", ExtendFailed: "extend_failed",
	Lost: "lost", Released: "released", PassedOn: "passed_on", CleanedUp: "cleaned_up", Overrun: "overrun",
	Ran: "ran", Replayed: "replayed", Refused: "refused",
	Misused: "misused", NodeOut: "node_out", NodeBack: "node_back", RanUnlocked: "unlocked",
	Revoked: "revoked",
}

// String is the kind as a label of metrics: "gave_up" for GaveUp, "unlocked" for
// RanUnlocked. It does not change between versions.
func (k Kind) String() string {
	return nameIn(kindNames[:], int(k))
}

// Mode says how a key is held, or asked for.
type Mode uint8

// The modes.
const (
	ModeExclusive Mode = iota + 1
	ModeShared         // Shared
	ModePermits        // Permits
	ModeRun            // Begin, and so a call of once
)

var modeNames = [...]string{
	ModeExclusive: "exclusive", ModeShared: "shared", ModePermits: "permits", ModeRun: "run",
}

// String is the mode as a label of metrics, "exclusive" for ModeExclusive. It does
// not change between versions.
func (m Mode) String() string {
	return nameIn(modeNames[:], int(m))
}

func nameIn(names []string, i int) string {
	if i <= 0 || i >= len(names) {
		return "unknown"
	}
	return names[i]
}

// Event is one thing that happened to a lock. Its fields never have a key, an owner or a
// token: Kind, Name, Mode and the two flags can label a metric.
//
// The life of a lease, as it is told:
//
//	Acquire ──→ Busy ──┐
//	   │               ├──→ GaveUp
//	   └───────────────┤
//	                   ↓        ┌──────────────────────────────────┐
//	               Acquired ────┤ Extended, ExtendFailed, Overrun, │
//	                   │        │ each any number of times         │
//	                   │        └──────────────────────────────────┘
//	                   ├──→ Lost
//	                   └──→ PassedOn, if its hold goes to a waiter ──→ Released
//
// Each Acquired is followed by one Lost or one Released, which only CleanedUp can
// follow. An observer that takes long for another event of the lease delays it. So
// the number of Acquired less that of both is the number of leases that this process
// has, and never negative. A lease over several keys can be extended before it is
// Acquired, while it waits for the next key. Claims of unknown outcome are told by
// CleanedUp, and belong to no lease any more.
//
// A call of once is told by one of Ran, Replayed and Refused, at its end, beside the
// events of the lease of its run.
type Event struct {
	Kind Kind
	Name string
	// Mode is that of the lease, or of the claim; 0 where the event is about
	// neither, and for RanUnlocked and Revoked.
	Mode Mode
	// Contended, of Acquired, Busy, GaveUp, Lost, Released and once's: the key was
	// not free for the caller. The store said busy, or the caller stood in the queue
	// of this process.
	Contended bool
	// Reentered, of Acquired, GaveUp, Lost and Released: the lease joined a hold that
	// its owner had.
	Reentered bool
	Attempt   int           // Ran, Replayed, Refused: the run that it is about, counted from 1; 0 if unknown
	Wait      time.Duration // Acquired, GaveUp, Ran, Replayed, Refused: how long the acquire took
	Held      time.Duration // Lost, Released, Overrun, Ran: since the grant
	Err       error

	// of is the subject of the event, nil if that has no key. It is an interface, so that
	// a printer or encoder of an event does not follow it to a key.
	of subject
}

// subject is what an event can be about.
type subject interface {
	about() (key, hold string)
}

// Hold is the ID of the hold that the event is about, as Lease.ID tells it; that of
// the claim where there is no hold yet, and "" where the event is about neither. It
// is for logs and traces: as a label of a metric it would make a series each time.
func (e Event) Hold() string {
	if e.of == nil {
		return ""
	}
	_, hold := e.of.about()
	return hold
}

// ofHold is adapter.OfHold.
func (e Event) ofHold(id string) Event {
	e.of = holdOf(id)
	return e
}

// holdOf is a hold of which only the ID is known.
type holdOf string

func (h holdOf) about() (key, hold string) { return "", string(h) }

// events notifies the observer of a Locker.
type events struct{ observer Observer } // nil: nothing is notified

// observe notifies the observer of e.
func (v events) observe(ctx context.Context, e Event) {
	if v.listens(e.Kind) {
		notify(ctx, v.observer, e)
	}
}

// listens reports whether the observer wants events of this kind.
func (v events) listens(k Kind) bool {
	if _, onlyLosses := v.observer.(lossLog); onlyLosses {
		return k == Lost
	}
	return v.observer != nil
}
