package store

import (
	"context"
	"time"
)

// All is the whole weight of a key: a claim of All out of All is exclusive, a
// claim of 1 out of All is a reader.
const All int64 = 1<<31 - 1

// WaiterLife bounds how long a store remembers a waiting claim that does not
// ask again. A live waiter asks at least every five and a half seconds. A dead one must
// not hold up the fair queue for the whole of a long TTL.
const WaiterLife = 10 * time.Second

// TokenStep is how many fencing tokens belong to one grant: with token T, those
// from T to T+TokenStep-1. A Locker gives them to the leases that have the hold one
// after the other. Tokens are below 2^53, since many resources compare them as
// floating-point numbers.
const TokenStep = 64

// Claim says how much of which key its owner wants, and for how long.
//
// A claim is whole and absolute: it names the state that shall be, not a step
// towards it, so that sending it twice changes nothing.
type Claim struct {
	// Key is the name of the lock: 1 to 512 bytes of printable UTF-8 without braces.
	Key string
	// Owner is the holder. Holds of one owner do not exclude each other.
	Owner string
	// Lease names this one hold of the owner. It is never used for another.
	Lease string
	// Via is an owner to join: if it holds Key, the claim becomes a hold of
	// that owner and Grant.Owner says so; if not, Via is ignored. A claim
	// heavier than the hold it joins is refused with ErrInvalid.
	Via string
	// Weight and Limit are the admission rule: the live weights of other owners
	// plus Weight must not exceed Limit.
	Weight, Limit int64
	// TTL is how long the grant lasts on the store's clock, in whole
	// milliseconds of at least 1.
	TTL time.Duration
	// Fair makes the claim respect earlier fair waiters of the key.
	Fair bool
	// Wait asks a store that is busy to remember the claim for its TTL, at most
	// WaiterLife, to keep its place if it is Fair, and to wake its Watch. Asking
	// again renews that and keeps the place.
	Wait bool
	// Push goes with Wait, and lets the store admit the claim later, as Watcher
	// says. A caller that sets it heeds Grant.Valid.
	Push bool
	// MinToken is the least fencing token that will do. A store that cannot
	// fence refuses a claim with MinToken > 0.
	MinToken uint64
	// Keep is for Release: the key stays taken for this long, by a hold that cannot be
	// joined, extended or released.
	Keep time.Duration
	// Last is for Release: the last of the grant's tokens that was used, 0 if that is
	// not known. A store may grant those behind it again.
	Last uint64
	// Undo is for Release without a record: it also takes back the run that the
	// lease has begun, whose work, by the word of the caller, has not begun.
	Undo bool
	// Record is the answer kept under the key; nil for a plain lock.
	Record *Record
}

// Record is an answer that outlives its claim, so that work is not done twice.
//
// A claim with a record begins a run: Acquire stores Value with Attempt 1, or,
// where an unfinished record of an earlier run is kept, adds 1 to its Attempt
// and leaves its Value. If a finished record is kept, that is the answer and
// nothing is claimed. Release with a record replaces it (Value, Attempt and
// Done as given) in the step that gives up the hold. It does so if the claim is
// still held. It also does so if it is not, as long as the last run that was begun
// is this lease's and no lease has saved anything since. A lease whose successor has
// begun a run, or has saved, writes nothing. Release without a record leaves the kept
// record as it is, so a claim that was granted and is given back counts as a run,
// unless it says Undo.
//
// Undo takes back the last run that was begun, if it was this lease that began
// it and no lease has saved anything since: the record is the one that Acquire found,
// with its Value, its Attempt and its end, or none if it found none. An earlier run
// that had not saved anything is the last one again, and can save. One run back is
// remembered: where two in a row are undone, the second one takes back no more than
// the count, and leaves a record to which no run saves without beginning anew. Undo
// works whether the lease is still held or not, and once: the same Release again
// takes back nothing more. A lease that has begun no run, or after which another
// one has, changes no record.
//
// A lease whose run is the last one and not finished begins no other: the same
// claim again, after its hold has expired, is that run.
//
// How long a record is kept and how long a claim lasts are independent.
type Record struct {
	Value   []byte // opaque to the store
	Attempt int    // how many runs have begun, this one included
	Done    bool   // finished: later claims are answered with it
	// Retain is how long the store keeps it from this write on: at least 1 ms
	// for Acquire, while Release with 0 leaves no record. In a Grant it is what
	// is left of that.
	Retain time.Duration
}

// Grant is an admitted claim.
type Grant struct {
	// Owner is the claim's own Owner, or the owner that it joined.
	Owner string
	// Token is the fencing token. For a claim of All it is greater than every
	// token that belongs to an earlier grant of the key. The TokenStep-1 tokens
	// after it belong to this grant too. A claim that is sent again, and one that
	// joins, is told the same token, or another one that is less than that of any
	// later grant. It is 0 for other weights, and where the store cannot fence.
	Token uint64
	// Valid is how long the grant lasts, counted from the moment the claim was
	// sent; 0 means the claim's TTL.
	Valid time.Duration
	// Record is what is kept under the key after this step, for a claim with a
	// record and nil for any other. If it is Done, nothing was claimed.
	Record *Record
}

// Extension is the answer to one claim of an Extend: nil, ErrLost, or what
// went wrong, in which case the hold may or may not have been extended.
type Extension struct {
	Valid time.Duration // as in Grant
	Err   error
}

// Store admits claims and remembers them. It never waits, retries, extends on
// its own or logs; that is the Locker's part. core/storetest is its exact
// contract: a store is what passes that suite.
//
// Every method is safe for concurrent use and returns soon after ctx ends, even
// if the server does not answer. Expiry is by the store's clock.
//
// Errors of Acquire and Release fall in three classes. *BusyError, ErrLost,
// ErrInvalid and ErrUnsupported are answers. An error that matches
// ErrUnavailable says that the call certainly changed nothing. After any other
// error the outcome is unknown, and the caller has to clean up.
// An error of Acquire that has, or wraps one that has, a method Down() bool that
// returns true says that the server is known to be down: the Locker does not ask
// again by itself. Of several such errors the one that errors.As finds counts.
type Store interface {
	// Acquire tries once to admit c. The same claim again gives the same grant,
	// lasting for a TTL from then. It fails with *BusyError (RetryAfter set to
	// the time after which it makes sense to ask again even without a wake-up, and
	// Waiting for a claim with Wait if the store keeps a list of those),
	// with ErrLost if c was released before it arrived, with ErrInvalid if c is
	// heavier than the hold that it joins, and with ErrUnsupported, before
	// anything is sent, if the store cannot serve claims of this kind.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Extend makes each claim last for its TTL from now, with one answer per
	// claim, in order. It never creates a hold and never shortens one. One
	// claim's failure does not affect another.
	Extend(ctx context.Context, claims []Claim) []Extension

	// Release gives up c whether it is held, waiting or was never seen. It
	// returns nil if c was held or waiting, and ErrLost if the store no longer
	// has it or never had. An unknown lease is remembered for c.TTL, so that an
	// Acquire that was overtaken by its Release is refused with ErrLost; with a
	// TTL of 0 it is not. If the key has room and a claim waits, one waiter is
	// woken. If only kept weight leaves no room for a waiter, one of these is woken and
	// keeps its place: when it asks, it learns when that weight is free.
	//
	// With a record, nil says that this record is saved, and ErrLost that it is
	// not; Record says when it is. A claim that only waits saves nothing. The same Release again, after a
	// reply that was lost, is answered with nil for as long as what the lease
	// has saved is kept and no other run has begun. A Release without a record
	// is then answered with ErrLost.
	Release(ctx context.Context, c Claim) error
}
