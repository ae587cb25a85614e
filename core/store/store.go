package store

import (
	"context"
	"time"
)

// All is the whole weight of a key. A claim with weight All and limit All is exclusive,
// and a claim with weight 1 and limit All is a reader.
const All int64 = 1<<31 - 1

// WaiterLife is the maximum time for which a store remembers a waiting claim that does
// not ask again. A live waiter asks again within two thirds of this time. So a dead
// waiter does not delay the fair queue for the whole of a long TTL.
const WaiterLife = 10 * time.Second

// TokenStep is the number of fencing tokens of one grant. A grant with token T has the
// tokens from T to T+TokenStep-1. A Locker assigns them to the leases that have the
// hold one after the other. Tokens are below 2^53, because many resources compare them
// as floating-point numbers.
const TokenStep = 64

// Claim is a request for a weight of a key, for a time, by an owner.
//
// A claim describes the whole desired state, and not a transition. So sending a claim
// twice has the effect of sending it once.
type Claim struct {
	// Key is the name of the lock: 1 to 512 bytes of printable UTF-8. It has no braces,
	// unless the store accepts braces (Braced).
	Key string
	// Owner names the holder. Holds of one owner do not exclude each other.
	Owner string
	// Lease names this hold of the owner. The name is never reused.
	Lease string
	// Via names an owner to join. If this owner holds Key, the claim becomes a hold of
	// this owner, and Grant.Owner is Via. If not, Via is ignored. A claim that is
	// heavier than the hold that it joins is refused with ErrInvalid.
	Via string
	// Weight and Limit are the admission rule: the live weights of other owners
	// plus Weight must not exceed Limit.
	Weight, Limit int64
	// TTL is the time for which the grant lasts on the store's clock, in whole
	// milliseconds, at least 1.
	TTL time.Duration
	// Fair makes the claim respect earlier fair waiters of the key.
	Fair bool
	// Wait asks the store to remember a claim that is refused as busy, for the claim's
	// TTL and at most WaiterLife. The store then keeps the claim's place if it is Fair,
	// and wakes its Watch. A claim that is sent again keeps its place, and is
	// remembered for at least three quarters of that time from then on.
	Wait bool
	// Push applies only with Wait. It lets the store admit the claim later, as
	// described at Watcher. A caller that sets Push has to respect Grant.Valid.
	Push bool
	// MinToken is the least fencing token that the caller accepts. A store that cannot
	// fence refuses a claim with MinToken > 0.
	MinToken uint64
	// Keep makes Release keep the claim's weight taken for this time, by a hold that
	// cannot be joined, extended or released.
	Keep time.Duration
	// Last is, for Release, the last used token of the grant, or 0 if unknown. A store
	// may use the grant's tokens after Last for the next grant.
	Last uint64
	// Undo makes a Release without a record also undo the run that the lease has begun.
	// The caller asserts that the run's work has not begun.
	Undo bool
	// Record is the record of a run, or nil for a claim without a run.
	Record *Record
}

// Record is an answer that outlives its claim, so that work is not done twice.
//
// An Acquire with a record begins a run. If no record is stored, it stores Value with
// Attempt 1. If an unfinished record of an earlier run is stored, it adds 1 to the
// stored Attempt and leaves the stored Value. If a finished record is stored, Acquire
// returns that record and claims nothing.
//
// A Release with a record replaces the stored record with the given Value, Attempt and
// Done, in the step that releases the hold. The record is saved if the claim is still
// held. It is also saved after the end of the hold, if this lease has begun the last
// run and no lease has saved a record since then. Otherwise the Release saves nothing.
// A Release without a record does not change the stored record. So a claim that was
// granted and is released counts as a run, unless its Release has Undo.
//
// Undo undoes the last run, if this lease has begun that run and no lease has saved a
// record since then. The store then has the record that Acquire found, with the same
// Value, Attempt and expiry. If Acquire found no record, the store has none. If Acquire
// found the record of an unfinished run, that run is the last run again. It can then
// save its record.
//
// The store remembers only one earlier run. If two runs in a row are undone, the second
// Undo only reduces Attempt by 1. No earlier run can then save its record without
// beginning again. Undo works even if the lease is no longer held. If the same Release
// is sent again, it undoes nothing more. Undo changes no record if its lease has begun
// no run, or if another lease has begun a later run.
//
// A lease begins no other run while its run is the last run and is not finished. If the
// same claim is sent again after its hold has expired, the claim continues that run.
//
// The time for which a record is retained does not depend on the time for which a claim
// lasts.
type Record struct {
	Value   []byte // opaque to the store
	Attempt int    // the number of runs that have begun, including this one
	Done    bool   // the run is finished, and later claims get this record
	// Retain is the time for which the store keeps the record after this write. It is
	// at least 1 ms for Acquire. After a Release with Retain 0, no record is stored. In
	// a Grant, Retain is the rest of the time.
	Retain time.Duration
}

// Grant is an admitted claim.
type Grant struct {
	// Owner is the claim's own Owner, or the owner that it joined.
	Owner string
	// Token is the fencing token. For a claim of All it is greater than every token of
	// an earlier grant of the key. The next TokenStep-1 tokens belong to this grant
	// too. A claim that is sent again or that joins gets the same token or another
	// token. The other token is less than the token of any later grant. Token is 0 for
	// other weights, and if the store cannot fence.
	Token uint64
	// Valid is the time for which the grant lasts, counted from the moment at which the
	// claim was sent. 0 means the claim's TTL.
	Valid time.Duration
	// Record is the stored record after this step, for a claim with a record. It is nil
	// for any other claim. If Record is Done, nothing was claimed.
	Record *Record
}

// Extension is the answer to one claim of an Extend. Err is nil if the hold was
// extended, and ErrLost if the store no longer has it. After any other error the hold
// may or may not have been extended.
type Extension struct {
	Valid time.Duration // see Grant.Valid
	Err   error
}

// Store admits claims and remembers them. It never logs, waits until a key is free, or
// extends without a request. A call may repeat its own steps, for example after a
// conflict of two writes. The Locker decides whether the call is repeated. The tests of
// core/storetest are the exact contract.
//
// Every method is safe for concurrent use and returns soon after ctx is done, even if
// the server does not answer. Expiry is by the store's clock.
//
// The errors of Acquire and Release have three classes. *BusyError, ErrLost, ErrInvalid
// and ErrUnsupported are answers. An error that matches ErrUnavailable means that the
// call certainly changed nothing. After any other error the outcome is unknown, and the
// caller has to release the claim.
//
// An error of Acquire, or an error that it wraps, can have a method Down() bool. If
// Down returns true, the server is known to be down, and the Locker does not retry the
// claim. If several wrapped errors have the method, only the error that errors.As finds
// counts.
type Store interface {
	// Acquire tries once to admit c. If the same claim is sent again while it is held,
	// it is granted again. The hold then lasts for at least a TTL from the new request.
	// Acquire fails with *BusyError if there is no room for the claim's weight. It
	// fails with ErrLost if c was released before it arrived. It fails with ErrInvalid
	// if c is heavier than the hold that it joins. It fails with ErrUnsupported, before
	// anything is sent, if the store cannot serve claims of this kind. RetryAfter of
	// the *BusyError is the time after which another request makes sense even without a
	// wake-up. Waiting is set for a claim with Wait if the store has a list of waiters.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Extend makes each claim last for its TTL from now. It returns one answer per
	// claim, in order. It never creates or shortens a hold. The failure of one claim
	// does not affect the others.
	Extend(ctx context.Context, claims []Claim) []Extension

	// Release releases c, even if c only waits or the store has never seen c. It
	// returns nil if c was held or waiting. It returns ErrLost if the store no longer
	// has c or never had it. An unknown lease is remembered for c.TTL. An Acquire that
	// arrives after its Release is then refused with ErrLost. With a TTL of 0 the lease
	// is not remembered. If the key has room and claims wait, Release wakes one waiter.
	// If waiters lack room only because of weight that Keep holds, Release wakes one of
	// them. The woken waiter keeps its place. When the waiter asks, the answer has the
	// time until the weight is free.
	//
	// For a Release with a record, nil means that this record is saved, and ErrLost
	// that it is not saved. Record has the conditions. A claim that only waits saves
	// nothing. A repeated Release returns nil as long as the saved record is stored and
	// no other run has begun. A Release without a record that is sent again returns
	// ErrLost.
	Release(ctx context.Context, c Claim) error
}
