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
	// Watch returns a channel that receives when the store believes that the waiting
	// claim c may now succeed. Wake-ups are hints: they can come too often, and some
	// can be lost. The watch is live before Watch returns and stops when ctx is done.
	// The channel is closed when the watch breaks; the caller then polls, and may watch
	// again. The channel need not be closed when ctx is done. A store that cannot wake
	// this kind of claim returns ErrUnsupported.
	//
	// A store may admit c, if c had Push when it last asked, in the step that makes
	// room. No other claim is then granted in between, and the wake-up can report the
	// grant. The Acquire that follows returns the rest of that grant, which is short: a
	// Locker extends it within some milliseconds. Until the grant expires, it keeps
	// others out, even if the claim does not ask.
	Watch(ctx context.Context, c Claim) (<-chan struct{}, error)
}

// Checker is a Store that reports whether it serves a claim before one is sent.
type Checker interface {
	// CheckClaim returns nil if the store serves claims like c. Otherwise it returns
	// the error with which the store refuses them before anything is sent:
	// ErrUnsupported for a kind that it does not serve, ErrInvalid for a claim that is
	// never allowed. A claim with Keep is one that is released with it. The result is
	// the same at all times. CheckClaim sends nothing and does not block.
	CheckClaim(c Claim) error
}

// Braced is a Store that may take keys with braces, as other clients of the same server
// wrote them. The keys of any other Store have no braces.
type Braced interface {
	// Braces reports whether the store takes such keys. It is the same at all times.
	Braces() bool
}

// Prompt is a Store that bounds its calls itself. So a Locker needs no context with a
// timer for each call. A timer that is earlier than all others wakes the thread that
// sleeps in the runtime's poller, which costs more than the rest of the bookkeeping of
// a cycle.
type Prompt interface {
	// Limit returns the maximum time of an Acquire or a Release, even if its ctx is
	// never done. It is the same at all times.
	//
	// A Locker relies on Limit where it allows a call that much: it sets no timer and
	// does not leave the call. So a call that takes longer delays Lease.Release,
	// Locker.Acquire or Locker.Close for as long. A store whose client calls functions
	// of the user, such as hooks, documents which of them can do that.
	Limit() time.Duration
}

// Node is a Store on one server that can identify the server. A store that is made of
// several stores asks it, so that no server is counted twice, or after it has forgotten
// its grants.
type Node interface {
	// Node describes the server that answers this Store. The answer is true of every
	// grant that arrived before the call: if the server was restarted before such a
	// grant, the answer is about its new life. Node fails with ErrUnsupported if the
	// server cannot or may not report this, and with ErrUnavailable if it does not
	// answer.
	Node(ctx context.Context) (NodeInfo, error)
}

// NodeInfo identifies a server.
type NodeInfo struct {
	ID      string        // identifies this life of the server: another ID after each start
	Replica bool          // it follows another server, and decides nothing
	Age     time.Duration // since its start, at most: it may have forgotten older grants
}

// Inspector is a Store that shows its holds, and from which a hold can be taken. It is
// for operators: the path of a lock does not use it, and its answers may be out of date
// when they arrive.
//
// Its methods are safe for concurrent use, and return soon after ctx is done. They fail
// with ErrInvalid for arguments out of range, before anything is sent, and with
// ErrUnsupported if the store was set up so that it cannot do this. They fail with
// ErrUnavailable if the store does not answer or refuses a right; nothing has changed
// then, and the error names the right.
type Inspector interface {
	// Look returns the state of one key. It changes nothing. Its time grows with the
	// holds and waiters of the key, but not with the length of a stored answer. If the
	// key has no live entries, the State has no holds, waiters and run.
	Look(ctx context.Context, key string) (State, error)

	// List returns the keys that have live entries, in pages of about most, 1 to 1,000,
	// in no particular order. The first page is after "", each other one after the next
	// of the page before, and the last one has the next "". A page can be shorter than
	// most, and empty, while others follow. It can be longer by the finds of one step
	// of the store, about 1,000. A key that has live entries during the whole walk is
	// seen at least once, and can be seen twice; if the keys move between servers in
	// the meantime, it can be missed. The contents of next are the store's own: it may
	// contain a key, and List refuses one that no List has returned with ErrInvalid.
	//
	// List may have to walk over all keys of the server. It does so in small steps with
	// pauses, and stops when ctx is done.
	List(ctx context.Context, after string, most int) (page []State, next string, err error)

	// Revoke ends the hold of key whose ID is hold, whichever lease has it now. The
	// hold can neither be extended nor released after that. Its holder learns of the
	// loss by its next extension, at a third of the lease's TTL. No other hold of the
	// key ends, not even one of the same owner. An unfinished run stays counted.
	//
	// With keep > 0, at most MaxKeep, the key stays taken by the weight of the hold. It
	// stays taken for keep, or for the time that the hold has left in the step that
	// ends it, whichever is longer. No claim is admitted in its place before its holder
	// has learned of the loss, or has ceased to trust the hold. So keep = 1ms means the
	// time that the hold has left. With keep = 0 the key is free at once, and there can
	// be two holders until the first one learns of the loss.
	//
	// Revoke fails with ErrLost if the key has no such hold: it expired, was released
	// or lost, was never there, or only waits. Nothing has changed then. After any
	// error other than ErrLost and those of Inspector it is unknown whether the hold
	// was revoked; call Revoke again to find out.
	Revoke(ctx context.Context, key, hold string, keep time.Duration) error
}

// MaxKeep is the maximum keep of Inspector.Revoke, and the maximum TTL of a lease: 24
// days.
const MaxKeep = 24 * 24 * time.Hour

// MostListed is the maximum length of a page of Inspector.List.
const MostListed = 1000

// State is the state of a key as a store shows it. It has no owner, no lease and no
// stored value, so that its reader can neither join, extend nor release a hold. It has
// durations instead of times, because the clocks of the store and its reader differ.
type State struct {
	Key     string
	Holds   []Hold // in no particular order
	Waiters []Hold // those that the store remembers, in order of arrival
	Run     *Run   // the run recorded under the key, or nil
}

// Hold is a hold in a State, or a claim that waits.
type Hold struct {
	// ID is HoldID of the claim's lease. It is "" for a hold that Claim.Keep or Revoke
	// has left: such a hold has no owner, but keeps others out. Where leases are not
	// distinguished, as with plain keys, it is HoldID of the claim's owner, which is
	// the same for all claims of a Locker.
	ID string
	// Process is ProcessOf of the claim's lease, the Process of its Card. It is "" for
	// a hold without an ID, for a lease that no Locker has named, and where the store
	// does not know, as with plain keys.
	Process string
	// Weight is All for an exclusive hold. Readers and permits have less.
	Weight int64
	Fair   bool // for a waiter
	// Age is the time since the grant, or since a waiter first asked. It is 0 where the
	// store does not know.
	Age time.Duration
	// Left is the time until it expires if it is not extended or does not ask again, at
	// most. 0 means less than a millisecond, or unknown.
	Left time.Duration
}

// Run is a Record in a State.
type Run struct {
	Attempt int           // the number of runs that have begun
	Done    bool          // finished: it has an answer
	Left    time.Duration // the time until it expires
}

// HoldID returns the ID, in logs and for operators, of the hold of a claim with this
// Claim.Lease: 11 letters, digits, '-' and '_'. The lease cannot be found from it.
func HoldID(lease string) string {
	if lease == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("hold\x00" + lease))
	return base64.RawURLEncoding.EncodeToString(sum[:8])
}

// ProcessOf returns the ID of the process (to be exact, of its Locker) that made a
// claim with this Claim.Lease: 8 letters and digits, or "" for a lease that no Locker
// has named. It is for stores that show their holds to operators. Unlike the lease the
// ID is no secret.
func ProcessOf(lease string) string { return leaseid.ProcessOf(lease) }
