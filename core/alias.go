package core

import "github.com/lockkit/lockkit/core/store"

// Store is the place of the locks: a store of core/redisstore, core/pgstore,
// core/sqlstore, core/zkstore, core/redlock or core/memstore, or one of your own.
// Package core/store has its contract.
type Store = store.Store

// Card describes a process to operators, see WithCard.
type Card = store.Card

// BusyError is the ErrBusy with the time to wait.
type BusyError = store.BusyError

// The errors of the kit, each the value of the same name in package core/store. Use
// errors.Is to find them. A returned error says more in its text, and also matches the
// cause of a context that is done.
var (
	// ErrBusy is returned when another owner holds the key, or is before the caller in
	// the queue.
	ErrBusy = store.ErrBusy
	// ErrLost is returned when the lease is no longer held by this process. The loss is
	// final.
	ErrLost = store.ErrLost
	// ErrClosed is returned when the Locker is closed.
	ErrClosed = store.ErrClosed
	// ErrUnavailable is returned when the store could not be reached, or did not answer
	// in time. After an acquire no lock is held, and a claim that may have been granted
	// is released.
	ErrUnavailable = store.ErrUnavailable
	// ErrUnsupported is returned when the store cannot serve this kind of claim.
	ErrUnsupported = store.ErrUnsupported
	// ErrInvalid is returned when a key or an option is not allowed. Nothing was sent.
	ErrInvalid = store.ErrInvalid
)
