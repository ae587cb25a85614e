package store

import (
	"errors"
	"time"
)

// The errors of the kit. Use errors.Is to find them. The text of a returned error has
// more details. If a done context caused the error, the error also matches the
// context's cause. Package core has the same values under the same names.
var (
	// ErrBusy is returned when another owner holds the key or is before the caller in
	// the queue, or when the queue is full.
	ErrBusy = errors.New("lockkit: lock is busy")
	// ErrLost is returned when the lease is no longer held by this process. The loss is
	// final. A store also answers an acquire with ErrLost if the claim was released
	// before the acquire arrived.
	ErrLost = errors.New("lockkit: lock lost")
	// ErrClosed is returned when a Locker is closed. The Watch of a closed store may
	// return it too.
	ErrClosed = errors.New("lockkit: locker closed")
	// ErrUnavailable is returned when the store could not be reached, or did not answer
	// in time. A store returns it only if the call certainly changed nothing.
	ErrUnavailable = errors.New("lockkit: lock store unavailable")
	// ErrUnsupported is returned when the store cannot serve this kind of claim.
	ErrUnsupported = errors.New("lockkit: not supported by this lock store")
	// ErrInvalid is returned when a key or an option is not allowed. Nothing was sent,
	// unless the claim is heavier than the hold that it joins.
	ErrInvalid = errors.New("lockkit: invalid argument")
)

// ErrSaved is returned when the run of the lease has already saved a record, and no
// other run has begun since then. A Release with the saved record returns nil instead.
// ErrSaved matches ErrLost. A store that saves records in transactions of the caller
// returns ErrSaved. The caller learns from this error that such a transaction was
// committed.
var ErrSaved error = savedError{}

type savedError struct{}

func (savedError) Error() string { return ErrLost.Error() + ": this run has saved its record before" }

// Is reports whether target is ErrLost.
func (savedError) Is(target error) bool { return target == ErrLost }

// BusyError is an error that matches ErrBusy and contains hints for the next attempt.
type BusyError struct {
	Key  string // the busy key; not part of the error's text
	Name string // the lock's static name
	// RetryAfter is a hint: the time until the present hold expires if it is not
	// extended. It is 0 if unknown.
	RetryAfter time.Duration
	// Waiting is the approximate number of claims that wait for the key at the store,
	// in all processes. It is at least half and at most twice the exact number, which
	// includes the caller's own claim. It is 0 if the caller had no place in a list of
	// the store. That is so with Wait(0), and for a caller that waited in the queue of
	// its process. It is also so if the store has no list of waiters, as with plain
	// keys. A store without wake-ups, such as sqlstore, has a list of fair claims only.
	Waiting int
}

// Error returns a text with the lock's name. The text never contains the key.
func (e *BusyError) Error() string {
	if e.Name == "" {
		return ErrBusy.Error()
	}
	return `core: acquire "` + e.Name + `": ` + ErrBusy.Error()
}

// WithoutKey returns a copy of the error without the key. Use it for events, and for
// code that shows or stores the contents of an error. A key can contain a customer's
// data.
func (e *BusyError) WithoutKey() *BusyError {
	shown := *e
	shown.Key = ""
	return &shown
}

// Is reports whether target is ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }
