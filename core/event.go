package core

import (
	"context"
	"time"
)

// Kind is the kind of an Event.
type Kind int

// The kinds of events. The documentation of Event has a diagram of the life of a lease.
const (
	// Acquired means that a lease was granted. Event.Wait is the duration of the acquire.
	// Exactly one Lost or Released follows.
	Acquired Kind = iota + 1
	// Busy means that an acquire found the key taken, by the store's answer or by other
	// callers of this process before it in the queue. The acquire then waits or gives
	// up. Each acquire reports Busy at most once.
	Busy
	// GaveUp means that an acquire failed. Event.Wait is its duration, and Event.Err the
	// reason.
	GaveUp
	// Extended means that the watchdog extended a lease.
	Extended
	// ExtendFailed means that an attempt to extend a lease failed, with the error
	// Event.Err. The extension is retried as long as the lease is held.
	ExtendFailed
	// Lost means that a lease was lost. Its context is done. Event.Held is the time
	// from the grant to the loss. If the lease of a run is released later, CleanedUp
	// can follow, and no other event.
	Lost
	// Released means that a lease was released that had not been lost. Event.Held is
	// the time from the grant to the release. Event.Err is set if the store did not
	// confirm the release, or no longer had the lease.
	Released
	// PassedOn means that the release of a lease passed the hold on to a waiter of this
	// process.
	PassedOn
	// CleanedUp means one of these:
	//   - A claim of unknown outcome was released. If Event.Err is set, the store has
	//     not confirmed the release, and the release is no longer retried.
	//   - A run was finished or withdrawn after its lease had been released. If
	//     Event.Err is set, the store did not confirm this, or another run had begun.
	//   - The answer of a run was not saved, because the lease had been lost and
	//     another run had begun. Event.Err is set.
	CleanedUp
	// Overrun means that a lease was held for longer than MaxHold. The lease is no
	// longer extended.
	Overrun
	// Ran means that a call of once has run its work. Event.Attempt is the number of
	// the run, Event.Wait the duration of the acquire, and Event.Held the time since
	// the grant. If Event.Err is set, the work failed, or its result could not be
	// saved.
	Ran
	// Replayed means that a call of once returned a stored answer. Event.Attempt is the
	// number of the run that stored the answer, and Event.Wait the duration of the
	// acquire.
	Replayed
	// Refused means that a call of once returned without an answer, and without a run
	// that counts. Event.Err is the reason, for example in progress, mismatch,
	// unreplayable, indeterminate, an error of the store, or a withdrawn run.
	Refused
	// Misused means that an adapter was set up in a way that cannot work. Event.Err is
	// the reason.
	Misused
	// NodeOut means that a node of a store with several nodes no longer counts.
	// Event.Err is the reason. NodeBack means that the node counts again. For both
	// kinds Event.Name is the node's name, "node-0" for the first node.
	NodeOut
	NodeBack
	// RanUnlocked means that work runs without its lock. The store is unavailable, and
	// the adapter allows such work (FailOpen). Event.Err is the reason.
	RanUnlocked
	// Revoked means that an operator revoked a hold by package inspect. If Event.Err is
	// set, it is unknown whether the hold was revoked. The process that had the hold
	// reports Lost later.
	Revoked
)

var kindNames = [...]string{
	Acquired: "acquired", Busy: "busy", GaveUp: "gave_up", Extended: "extended", ExtendFailed: "extend_failed",
	Lost: "lost", Released: "released", PassedOn: "passed_on", CleanedUp: "cleaned_up", Overrun: "overrun",
	Ran: "ran", Replayed: "replayed", Refused: "refused",
	Misused: "misused", NodeOut: "node_out", NodeBack: "node_back", RanUnlocked: "unlocked",
	Revoked: "revoked",
}

// String returns the kind as a label for metrics: "gave_up" for GaveUp, "unlocked" for
// RanUnlocked. The label does not change between versions.
func (k Kind) String() string {
	return nameIn(kindNames[:], int(k))
}

// Mode is the way in which a key is claimed and held.
type Mode uint8

// The modes.
const (
	ModeExclusive Mode = iota + 1
	ModeShared         // Shared
	ModePermits        // Permits
	ModeRun            // set by Begin, and so by a call of once
)

var modeNames = [...]string{
	ModeExclusive: "exclusive", ModeShared: "shared", ModePermits: "permits", ModeRun: "run",
}

// String returns the mode as a label for metrics, "exclusive" for ModeExclusive. The
// label does not change between versions.
func (m Mode) String() string {
	return nameIn(modeNames[:], int(m))
}

func nameIn(names []string, i int) string {
	if i <= 0 || i >= len(names) {
		return "unknown"
	}
	return names[i]
}

// Event describes one step in the life of a lock. Its exported fields never contain a
// key, an owner or a token, so Kind, Name, Mode, Contended and Reentered can be metric
// labels.
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
// Each Acquired is followed by exactly one Lost or Released, after which only CleanedUp
// can follow. While an observer is handling another event of the lease, the Lost or
// Released is delayed. So the number of Acquired less the number of Lost and Released
// is never negative. It is the number of leases that the Locker has. A lease over
// several keys can report Extended before Acquired, while its acquire waits for the
// next key. CleanedUp also reports claims of unknown outcome, which belong to no lease.
//
// Each call of once reports Ran, Replayed or Refused when it returns. The exceptions
// are an invalid call, and a Locker that was closed before. The lease of a run reports
// the events of a lease in addition.
type Event struct {
	Kind Kind
	Name string
	// Mode is the mode of the lease or of the claim. It is 0 if the event is about
	// neither, and for RanUnlocked and Revoked.
	Mode Mode
	// Contended is set if the store answered busy, or if the caller waited in the queue
	// of this process. It can be set in Acquired, Busy, GaveUp, Lost, Released and the
	// events of once.
	Contended bool
	// Reentered is set in Acquired, GaveUp, Lost and Released if the lease joined a
	// hold of an outer lease or of ContextWithOwner.
	Reentered bool
	Attempt   int           // Ran, Replayed, Refused: the number of the run, from 1; 0 if unknown
	Wait      time.Duration // Acquired, GaveUp, Ran, Replayed, Refused: the duration of the acquire
	Held      time.Duration // Lost, Released, Overrun, Ran: the time since the grant
	Err       error

	// of is the subject of the event, or nil if the event is about no lease, claim or
	// hold. The field is unexported and has an interface type. So a printer or encoder
	// of the event does not show a key.
	of subject
}

// subject is the lease, claim or hold of an event.
type subject interface {
	about() (key, hold string)
}

// Hold returns the ID of the event's hold, in the form of Lease.ID. If there is no hold
// yet, it returns the ID that the hold would have. It returns "" if the event is about
// no hold and no claim. Use the ID in logs and traces. Do not use it as a metric label,
// because every hold would create a series.
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

// holdOf is the ID of a hold. It is the subject of an event whose lease is unknown.
type holdOf string

func (h holdOf) about() (key, hold string) { return "", string(h) }

// events notifies the observer of a Locker.
type events struct{ observer Observer } // nil if there is no observer

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
