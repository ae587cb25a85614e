package store

import (
	"context"
	"time"
)

// All is the whole weight of a key: a claim of All out of All is exclusive, a claim of
// 1 out of All is a reader.
const All int64 = 1<<31 - 1

// WaiterLife is the maximum time for which a store remembers a waiting claim that does
// not ask again. A live waiter asks at least every five and a half seconds. A dead one
// must not hold up the fair queue for the whole of a long TTL.
const WaiterLife = 10 * time.Second

// TokenStep is the number of fencing tokens of one grant: with token T, those from T to
// T+TokenStep-1. A Locker assigns them to the leases that have the hold one after the
// other. Tokens are below 2^53, because many resources compare them as floating-point
// numbers.
const TokenStep = 64

// Claim is a request for a weight of a key, for a time, by an owner.
//
// A claim is whole and absolute: it describes the desired state, not a transition, so
// that sending it twice changes nothing.
type Claim struct {
	// Key is the name of the lock: 1 to 512 bytes of printable UTF-8 without braces.
	Key string
	// Owner is the holder. Holds of one owner do not exclude each other.
	Owner string
	// Lease names this one hold of the owner. It is never reused.
	Lease string
	// Via is an owner to join. If it holds Key, the claim becomes a hold of that owner,
	// and Grant.Owner is that owner; otherwise Via is ignored. A claim heavier than the
	// hold it joins is refused with ErrInvalid.
	Via string
	// Weight and Limit are the admission rule: the live weights of other owners
	// plus Weight must not exceed Limit.
	Weight, Limit int64
	// TTL is the time for which the grant lasts on the store's clock, in whole
	// milliseconds, at least 1.
	TTL time.Duration
	// Fair makes the claim respect earlier fair waiters of the key.
	Fair bool
	// Wait asks a store that is busy to remember the claim for its TTL, at most
	// WaiterLife, to keep its place if it is Fair, and to wake its Watch. Asking
	// again renews that and keeps the place.
	Wait bool
	// Push applies with Wait, and lets the store admit the claim later, as described at
	// Watcher. A caller that sets it heeds Grant.Valid.
	Push bool
	// MinToken is the lowest fencing token that the caller accepts. A store that cannot
	// fence refuses a claim with MinToken > 0.
	MinToken uint64
	// Keep makes Release keep the key taken for this long, by a hold that cannot be
	// joined, extended or released.
	Keep time.Duration
	// Last gives Release the last used token of the grant, 0 if unknown. A store may
	// grant the tokens behind it again.
	Last uint64
	// Undo makes a Release without a record also take back the run that the lease has
	// begun. The caller asserts that the run's work has not begun.
	Undo bool
	// Record is the answer stored under the key, nil for a plain lock.
	Record *Record
}

// Record is an answer that outlives its claim, so that work is not done twice.
//
// A claim with a record begins a run. Acquire stores Value with Attempt 1. Where an
// unfinished record of an earlier run is stored, it adds 1 to its Attempt and leaves
// its Value. If a finished record is stored, that is the answer and nothing is claimed.
//
// Release with a record replaces it (Value, Attempt and Done as given) in the step that
// releases the hold. It does so if the claim is still held. It also does so if the
// claim is not held, as long as this lease has begun the last run and no lease has
// saved anything since. A lease whose successor has begun a run, or has saved, writes
// nothing. Release without a record leaves the stored record as it is, so a claim that
// was granted and is released counts as a run, unless it has Undo.
//
// Undo takes back the last run, if this lease has begun it and no lease has saved
// anything since. The record is then the one that Acquire found, with its Value, its
// Attempt and its expiry, or none if Acquire found none. An earlier run that had not
// saved anything is the last one again, and can save.
//
// The store remembers one run back. Where two in a row are undone, the second Undo
// takes back no more than the count, and leaves a record to which no run saves without
// beginning again. Undo works whether the lease is still held or not, and once: the
// same Release again takes back nothing more. A lease that has begun no run, or after
// which another lease has, changes no record.
//
// A lease whose run is the last one and not finished begins no other run: the same
// claim again, after its hold has expired, is that run.
//
// The time for which a record is retained and the time for which a claim lasts are
// independent.
type Record struct {
	Value   []byte // opaque to the store
	Attempt int    // the number of runs that have begun, including this one
	Done    bool   // finished: later claims are answered with it
	// Retain is the time for which the store keeps the record from this write on: at
	// least 1 ms for Acquire, while Release with 0 leaves no record. In a Grant it is
	// the rest of that time.
	Retain time.Duration
}

// Grant is an admitted claim.
type Grant struct {
	// Owner is the claim's own Owner, or the owner that it joined.
	Owner string
	// Token is the fencing token. For a claim of All it is greater than every token
	// that belongs to an earlier grant of the key. The TokenStep-1 tokens after it
	// belong to this grant too. A claim that is sent again, and one that joins, gets
	// the same token, or another one that is less than that of any later grant. Token
	// is 0 for other weights, and where the store cannot fence.
	Token uint64
	// Valid is the time for which the grant lasts, counted from the moment when the
	// claim was sent. 0 means the claim's TTL.
	Valid time.Duration
	// Record is the record under the key after this step, for a claim with a record,
	// and nil for any other claim. If it is Done, nothing was claimed.
	Record *Record
}

// Extension is the answer to one claim of an Extend. Its Err is nil, ErrLost, or
// another error, after which the hold may or may not have been extended.
type Extension struct {
	Valid time.Duration // as in Grant
	Err   error
}

// Store admits claims and remembers them. It never waits, retries, extends on its own
// or logs; that is the Locker's part. core/storetest is its exact contract: a store is
// a type that passes that suite.
//
// Every method is safe for concurrent use and returns soon after ctx is done, even if
// the server does not answer. Expiry is by the store's clock.
//
// Errors of Acquire and Release fall in three classes. *BusyError, ErrLost, ErrInvalid
// and ErrUnsupported are answers. An error that matches ErrUnavailable says that the
// call certainly changed nothing. After any other error the outcome is unknown, and the
// caller has to clean up.
//
// An error of Acquire can have, or wrap an error that has, a method Down() bool. If
// Down returns true the server is known to be down, and the Locker does not ask again
// by itself. Of several such errors the one that errors.As finds counts.
type Store interface {
	// Acquire tries once to admit c. The same claim again gets the same grant, lasting
	// for a TTL from then. Acquire fails with *BusyError, with ErrLost if c was
	// released before it arrived, with ErrInvalid if c is heavier than the hold that it
	// joins, and with ErrUnsupported, before anything is sent, if the store cannot
	// serve claims of this kind. A *BusyError has RetryAfter set to the time after
	// which asking again makes sense even without a wake-up. It has Waiting set for a
	// claim with Wait if the store keeps a list of waiters.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Extend makes each claim last for its TTL from now. It returns one answer per
	// claim, in order. It never creates a hold and never shortens one. One claim's
	// failure does not affect another.
	Extend(ctx context.Context, claims []Claim) []Extension

	// Release releases c whether it is held, waiting or was never seen. It returns nil
	// if c was held or waiting, and ErrLost if the store no longer has it or never had
	// it. An unknown lease is remembered for c.TTL, so that an Acquire that was
	// overtaken by its Release is refused with ErrLost; with a TTL of 0 it is not
	// remembered. If the key has room and a claim waits, one waiter is woken. If only
	// kept weight leaves no room for a waiter, one waiter is woken and keeps its place:
	// when it asks, it learns when that weight is free.
	//
	// With a record, nil says that this record is saved, and ErrLost that it is not;
	// see Record for the conditions. A claim that only waits saves nothing. The same
	// Release again, after a reply that was lost, returns nil for as long as the record
	// that the lease has saved is stored and no other run has begun. A Release without
	// a record then returns ErrLost.
	Release(ctx context.Context, c Claim) error
}
