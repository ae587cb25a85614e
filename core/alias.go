package core

import "github.com/lockkit/lockkit/core/store"

// Store holds the locks: a store of core/redisstore, core/pgstore, core/sqlstore,
// core/zkstore, core/redlock, core/casstore or core/memstore, or your own
// implementation. Package core/store documents its contract.
type Store = store.Store

// Card describes a process to operators. See WithCard.
type Card = store.Card

// BusyError is an error that matches ErrBusy and contains hints for the next attempt.
type BusyError = store.BusyError

// The errors of the kit are the values of the same names in package core/store. Use
// errors.Is to find them. The text of a returned error has more details. If a done
// context caused the error, the error also matches the context's cause.
var (
	// ErrBusy is returned when another owner holds the key or is before the caller in
	// the queue, or when the queue is full.
	ErrBusy = store.ErrBusy
	// ErrLost is returned when the lease is no longer held by this process. The loss is
	// final.
	ErrLost = store.ErrLost
	// ErrClosed is returned when the Locker is closed.
	ErrClosed = store.ErrClosed
	// ErrUnavailable is returned when the store could not be reached, or did not answer
	// in time. If an acquire returns it, no lock is held, and a claim that may have
	// been granted is released.
	ErrUnavailable = store.ErrUnavailable
	// ErrUnsupported is returned when the store cannot serve this kind of claim.
	ErrUnsupported = store.ErrUnsupported
	// ErrInvalid is returned when a key or an option is not allowed. Nothing was sent,
	// unless the claim is heavier than the hold that it joins.
	ErrInvalid = store.ErrInvalid
)
