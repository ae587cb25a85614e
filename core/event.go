package core

import (
	"context"
	"time"
)

// Kind is the kind of an Event.
type Kind int

// The kinds of events. Event's documentation draws the life of a lease.
const (
	// Acquired means that a lease was granted, after Wait. Exactly one Lost or Released
	// follows.
	Acquired Kind = iota + 1
	// Busy means that an acquire found the key taken: the store answered so, or other
	// callers of this process are before it. The acquire then waits or gives up. Each
	// acquire has at most one Busy.
	Busy
	// GaveUp means that an acquire failed to get a lease, after Wait, with Err.
	GaveUp
	// Extended means that the watchdog extended a lease.
	Extended
	// ExtendFailed means that an attempt to extend a lease failed with Err. It is tried
	// again while the lease lasts.
	ExtendFailed
	// Lost means that a lease was lost after Held. Its context is done. When the lease
	// is released later, only CleanedUp of its run can follow.
	Lost
	// Released means that a lease that was not lost was released after Held. Err is set
	// if the store did not confirm that, or no longer had the lease.
	Released
	// PassedOn means that the hold of a lease that is being released went straight to a
	// waiter of this process.
	PassedOn
	// CleanedUp means one of these:
	//   - A claim of unknown outcome was released. With Err, it could not be released
	//     for its whole TTL, and for at least a minute.
	//   - A run was finished or withdrawn after its lease had been released. With Err,
	//     the store did not confirm that, or another run had begun.
	//   - The answer of a run whose lease had been lost is not saved, because another
	//     run had begun. Err is then set.
	CleanedUp
	// Overrun means that a lease was held for longer than MaxHold. It is not extended
	// any more.
	Overrun
	// Ran means that a call of once was run, as Attempt. It waited for Wait and was
	// held for Held. With Err, the work failed, or its end could not be saved.
	Ran
	// Replayed means that a call of once was answered, after Wait, with the answer of
	// Attempt.
	Replayed
	// Refused means that a call of once was neither run nor answered, after Wait. Err
	// is the reason: in progress, mismatch, unreplayable, indeterminate, the store, or
	// work that was taken back because it had not begun.
	Refused
	// Misused means that an adapter was set up in a way that cannot work. Err is the
	// reason.
	Misused
	// NodeOut means that a node of a store made of several nodes does not count,
	// because of Err. NodeBack means that it counts again. Name is the node's, "node-0"
	// for the first.
	NodeOut
	NodeBack
	// RanUnlocked means that work runs without its lock, because the store could not be
	// asked and its adapter is set to allow that. Err is the reason.
	RanUnlocked
	// Revoked means that an operator revoked a hold, by package inspect. With Err, it
	// is unknown whether the hold was revoked. The process that had the hold reports
	// Lost later.
	Revoked
)

var kindNames = [...]string{
	Acquired: "acquired", Busy: "busy", GaveUp: "gave_up", Extended: "extended", ExtendFailed: "extend_failed",
	Lost: "lost", Released: "released", PassedOn: "passed_on", CleanedUp: "cleaned_up", Overrun: "overrun",
	Ran: "ran", Replayed: "replayed", Refused: "refused",
	Misused: "misused", NodeOut: "node_out", NodeBack: "node_back", RanUnlocked: "unlocked",
	Revoked: "revoked",
}

// String returns the kind as a label of metrics: "gave_up" for GaveUp, "unlocked" for
// RanUnlocked. It does not change between versions.
func (k Kind) String() string {
	return nameIn(kindNames[:], int(k))
}

// Mode is the way in which a key is held or asked for.
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

// String returns the mode as a label of metrics, "exclusive" for ModeExclusive. It does
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

// Event is one thing that happened to a lock. Its fields never contain a key, an owner
// or a token: Kind, Name, Mode and the two flags can label a metric.
//
// The life of a lease, as an observer sees it:
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
// Each Acquired is followed by exactly one Lost or Released, which only CleanedUp can
// follow. An observer that takes long for another event of the lease delays it. So the
// number of Acquired less the number of Lost and Released is the number of leases that
// this process has, and never negative. A lease over several keys can be extended
// before it is Acquired, while it waits for the next key. Claims of unknown outcome are
// reported by CleanedUp, and belong to no lease any more.
//
// A call of once is reported by one of Ran, Replayed and Refused, when it returns,
// beside the events of the lease of its run.
type Event struct {
	Kind Kind
	Name string
	// Mode is the mode of the lease or of the claim. It is 0 where the event is about
	// neither, and for RanUnlocked and Revoked.
	Mode Mode
	// Contended is set in Acquired, Busy, GaveUp, Lost, Released and once's events if
	// the key was not free for the caller: the store answered busy, or the caller stood
	// in the queue of this process.
	Contended bool
	// Reentered is set in Acquired, GaveUp, Lost and Released if the lease joined a
	// hold that its owner had.
	Reentered bool
	Attempt   int           // Ran, Replayed, Refused: the number of the run, counted from 1; 0 if unknown
	Wait      time.Duration // Acquired, GaveUp, Ran, Replayed, Refused: how long the acquire took
	Held      time.Duration // Lost, Released, Overrun, Ran: since the grant
	Err       error

	// of is the subject of the event, nil if the subject has no key. It is an
	// interface, so that a printer or encoder of an event does not follow it to a key.
	of subject
}

// subject is the lease, claim or hold of an event.
type subject interface {
	about() (key, hold string)
}

// Hold returns the ID of the event's hold, as Lease.ID does. It is the claim's ID where
// there is no hold yet, and "" where the event is about neither. Use it in logs and
// traces. Do not use it as a metric label: every hold would create a series.
func (e Event) Hold() string {
	if e.of == nil {
		return ""
	}
	_, hold := e.of.about()
	return hold
}

// ofHold implements adapter.OfHold.
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
