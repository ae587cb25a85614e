package store

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/lockkit/lockkit/core/internal/leaseid"
)

// Watcher is a Store that can wake waiters.
type Watcher interface {
	// Watch returns a channel of wake-ups. The channel receives a value when the
	// waiting claim c may now succeed. Wake-ups are hints: there can be too many, and
	// some can be lost. The watch is live before Watch returns and stops when ctx is
	// done. If the watch breaks, the store closes the channel. The caller then polls,
	// and may watch again. The channel need not be closed when ctx is done. A store
	// that cannot wake this kind of claim returns ErrUnsupported.
	//
	// If the last request for c had Push, the store may admit c in the step that makes
	// room. No other claim can then take the room before c, and the store can send the
	// grant together with the wake-up. The next Acquire of c returns the rest of the
	// grant. The grant is short, because a Locker extends it within some milliseconds.
	// Until it expires, the grant keeps other claims out, even if c does not ask again.
	Watch(ctx context.Context, c Claim) (<-chan struct{}, error)
}

// Checker is a Store that reports whether it serves a claim, before the claim is sent.
type Checker interface {
	// CheckClaim returns nil if the store serves claims like c. Otherwise it returns
	// the error with which the store refuses such claims before anything is sent. The
	// error matches ErrUnsupported for a kind that the store does not serve, and
	// ErrInvalid for a claim that is never allowed. Keep in c means that c will be
	// released with Keep. The result does not change over time, except that a store can
	// learn the maximum length of a record from its server. CheckClaim sends nothing
	// and does not block.
	CheckClaim(c Claim) error
}

// Braced is a Store that may accept keys with braces, because other clients of the same
// server use such keys. Any other Store gets only keys without braces.
type Braced interface {
	// Braces reports whether the store accepts keys with braces. The result does not
	// change over time.
	Braces() bool
}

// Prompt is a Store that limits the time of its calls itself. So a Locker needs no
// context with a timer for each call. Such a timer can wake a sleeping thread, which
// costs time.
type Prompt interface {
	// Limit returns the maximum time of an Acquire or a Release, even if its ctx is
	// never done. The result does not change over time.
	//
	// If Limit is at most the time that a Locker allows for a call, the Locker sets no
	// timer. A call that takes longer than Limit then delays Lease.Release,
	// Locker.Acquire or Locker.Close. A store documents which functions of the user,
	// such as a client's hooks, can exceed Limit.
	Limit() time.Duration
}

// Node is a Store on one server that can identify the server. A store that consists of
// several stores calls Node. So it can count each server once, and exclude a server
// that has forgotten its grants.
type Node interface {
	// Node describes the server that answers this Store. The answer is valid for every
	// grant that arrived before the call. If the server was restarted before such a
	// grant, the answer describes the server after the restart. Node may return an
	// earlier answer that is still valid, without asking the server. Node fails with
	// ErrUnsupported if the server cannot or may not report this, and with
	// ErrUnavailable if it asks the server and gets no answer.
	Node(ctx context.Context) (NodeInfo, error)
}

// NodeInfo identifies a server.
type NodeInfo struct {
	ID      string        // identifies the server since its last start; each start changes the ID
	Replica bool          // the server is a replica of another server, and decides nothing
	Age     time.Duration // at most the time since its start; older grants may be forgotten
}

// Inspector is a Store that shows its holds and can revoke a hold. It is for operators.
// A Locker does not use it, and its answers may be out of date when they arrive.
//
// Its methods are safe for concurrent use, and return soon after ctx is done. They fail
// with ErrInvalid for arguments out of range, before anything is sent. They fail with
// ErrUnsupported if the configuration of the store does not allow them. They fail with
// ErrUnavailable, and change nothing, if the store does not answer or its server
// refuses a right. The error names the refused right.
type Inspector interface {
	// Look returns the state of one key. It changes nothing. Its time grows with the
	// number of holds and waiters of the key. It does not transfer a stored answer, but
	// the server may have to read the answer, as Redis does. For a key without live
	// entries, the State has no holds, no waiters and no run.
	Look(ctx context.Context, key string) (State, error)

	// List returns the keys that have live entries, in no particular order and in
	// pages. The parameter most, from 1 to 1,000, is the approximate length of a page.
	// The parameter after is "" for the first page, and the result next of the previous
	// page for each other page. The result next is "" for the last page. A page can be
	// shorter or empty, even if other pages follow. A page can also be longer than the
	// parameter most, by up to the keys of one step of the store, about 1,000. A key
	// that has live entries during the whole walk is returned at least once, and can be
	// returned twice. If keys move between servers during the walk, a key can be
	// missed. The content of next is internal to the store, and may contain a key. List
	// fails with ErrInvalid if after is neither "" nor a result next of List.
	//
	// List may have to walk over all keys of the server. It does so in small steps with
	// pauses, and returns when ctx is done.
	List(ctx context.Context, after string, most int) (page []State, next string, err error)

	// Revoke ends the hold of key whose ID is hold, whichever lease has the hold now.
	// After that the hold can neither be extended nor released. A holder that extends
	// the hold learns of the loss by its next extension, within a third of the lease's
	// TTL. Other holds of the key do not change, even holds of the same owner. An
	// unfinished run still counts.
	//
	// The range of keep is 0 to MaxKeep. If keep is above 0, the weight of the hold
	// stays taken for keep or for the rest of the hold's time, whichever is longer.
	// Before the weight is free, the holder has learned of the loss or no longer trusts
	// the hold. So keep = 1ms means the rest of the hold's time. With keep = 0 the
	// weight is free at once. There can then be two holders until the first holder
	// learns of the loss.
	//
	// Revoke fails with ErrLost, and changes nothing, if the key has no such hold. The
	// hold may have expired, may have been released or lost, or may never have existed.
	// A claim that still waits is no hold. After an error other than ErrLost and the
	// errors of Inspector, it is unknown whether the hold was revoked. Call Revoke
	// again to revoke the hold if it still exists.
	Revoke(ctx context.Context, key, hold string, keep time.Duration) error
}

// MaxKeep is the maximum keep of Inspector.Revoke, and the maximum TTL of a lease: 24
// days.
const MaxKeep = 24 * 24 * time.Hour

// MostListed is the maximum of the parameter most of Inspector.List.
const MostListed = 1000

// State is the state of a key as a store shows it. It has no owner, no lease and no
// stored value, so that a reader of the State cannot join, extend or release a hold. It
// has durations instead of times, because the clocks of the store and the reader
// differ.
type State struct {
	Key     string
	Holds   []Hold // in no particular order
	Waiters []Hold // the waiting claims that the store remembers, in order of arrival
	Run     *Run   // the run recorded under the key, or nil
}

// Hold is a hold in a State, or a claim that waits.
type Hold struct {
	// ID is HoldID of the claim's lease. It is "" for a hold that Claim.Keep or Revoke
	// has left. Such a hold has no owner, but keeps other claims out. If the store does
	// not know the lease, as with plain keys, ID is HoldID of the claim's owner. A
	// Locker uses the lease as the owner, unless the claim joins another owner.
	ID string
	// Process is ProcessOf of the claim's lease. The Card of the process has the same
	// Process. Process is "" for a hold without an ID and for a lease that no Locker has
	// named. It is also "" if the store does not know the lease, as with plain keys.
	Process string
	// Weight is All for an exclusive hold, and less for readers and permits.
	Weight int64
	Fair   bool // for a waiter: its claim is fair
	// Age is the time since the grant, or since a waiter first asked. It is 0 if the
	// store does not know the time.
	Age time.Duration
	// Left is the longest time until a hold that is not extended expires, and until a
	// waiter that does not ask again is forgotten. 0 means less than a millisecond, or
	// unknown.
	Left time.Duration
}

// Run is a Record in a State.
type Run struct {
	Attempt int           // the number of runs that have begun
	Done    bool          // the run is finished and has an answer
	Left    time.Duration // the time until the record expires
}

// HoldID returns the ID that logs and operators use for the hold of a claim with this
// Claim.Lease: 11 letters, digits, '-' and '_'. The lease cannot be derived from the
// ID. HoldID returns "" for an empty lease.
func HoldID(lease string) string {
	if lease == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("hold\x00" + lease))
	return base64.RawURLEncoding.EncodeToString(sum[:8])
}

// ProcessOf returns the ID of the process that made a claim with this Claim.Lease. Each
// Locker of a process has an ID of its own. The ID has 8 letters and digits. ProcessOf
// returns "" for a lease that no Locker has named. ProcessOf is for stores that show
// their holds to operators. Unlike the lease, the ID is not a secret.
func ProcessOf(lease string) string { return leaseid.ProcessOf(lease) }
