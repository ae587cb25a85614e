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
	// Watch returns a channel that receives when the store believes that the
	// waiting claim c may now succeed. Wake-ups are hints: they can come too
	// often, and some can be lost. The watch is live before Watch returns and
	// ends with ctx. The channel is closed when the watch breaks, after which
	// the caller polls, and may watch again; when ctx ends it need not be. A
	// store that cannot wake this kind of claim returns ErrUnsupported.
	//
	// A store may admit c, if it said Push when it last asked, in the step that
	// makes room, so that no other claim is granted in between, and let the wake-up say
	// so. The Acquire that follows is then answered with the rest of that grant, which is
	// short: a Locker extends it within some milliseconds. Until it has expired, it keeps others
	// out, even if the claim does not ask.
	Watch(ctx context.Context, c Claim) (<-chan struct{}, error)
}

// Checker is a Store that tells which claims it serves before one is sent.
type Checker interface {
	// CheckClaim returns nil if the store serves claims like c, and else the error
	// with which it refuses them before anything is sent: ErrUnsupported for a kind
	// that it does not serve, ErrInvalid for what no claim may have. A claim with
	// Keep is one that is released with it. It is the same at all times, sends
	// nothing and does not block.
	CheckClaim(c Claim) error
}

// Braced is a Store that may take keys with braces, as other clients of the same
// server wrote them. Those of any other Store have none.
type Braced interface {
	// Braces tells whether it takes them. It is the same at all times.
	Braces() bool
}

// Prompt is a Store that bounds its calls by itself. So a Locker needs no context with a
// timer for each call: a timer that is earlier than all others wakes the thread that sleeps
// in the runtime's poller, which costs more than the rest of the bookkeeping of a cycle.
type Prompt interface {
	// Limit is how long an Acquire or a Release takes at the most, also if its
	// ctx does not end. It is the same at all times.
	//
	// A Locker relies on it where it allows a call that much: it sets no timer and does not
	// leave the call. So a call that takes longer holds up Lease.Release, Locker.Acquire or
	// Locker.Close for as long. A store whose client calls functions of the user, such as
	// hooks, documents which of them can do that.
	Limit() time.Duration
}

// Node is a Store on one server that can say which one. A store that is made of several
// asks it, so that no server is counted twice, or after it has forgotten its grants.
type Node interface {
	// Node tells of the server that answers this Store. The answer is true of
	// every grant that arrived before the call: if the server was restarted
	// before such a grant, it is of its new life. It fails with ErrUnsupported if
	// the server cannot or may not tell, and with ErrUnavailable if it does not
	// answer.
	Node(ctx context.Context) (NodeInfo, error)
}

// NodeInfo says which server it is.
type NodeInfo struct {
	ID      string        // of this life of the server: another one after each start
	Replica bool          // it follows another server, and decides nothing
	Age     time.Duration // since its start, at most: it may have forgotten older grants
}

// Inspector is a Store that shows its holds, and from which a hold can be taken. It is
// for operators: the path of a lock does not use it, and its answers may be out of date
// when they arrive.
//
// Its methods are safe for concurrent use, and return soon after ctx ends. Arguments out
// of range are ErrInvalid, before anything is sent. A store that was set up so that it
// cannot is ErrUnsupported. A store that does not answer, or refuses a right, is
// ErrUnavailable: nothing has changed then, and the error names the right.
type Inspector interface {
	// Look shows one key. It changes nothing, and takes time in proportion to the holds
	// and waiters of the key, but not to the length of an answer that is kept. A key of
	// which nothing is alive has a State with no holds, waiters and run.
	Look(ctx context.Context, key string) (State, error)

	// List shows the keys of which something is alive, in pages of about most, 1 to
	// 1,000, in no particular order. The first page is after "", each other one after
	// the next of the page before, and the last one has the next "". A page can be
	// shorter than most, and empty, while others follow, and longer by what one step of
	// the store finds, about 1,000. A key that has something alive
	// during the whole walk is seen at least once, and can be seen twice; if the keys
	// move between servers meanwhile, it can be missed. What next says is the store's
	// own: it may contain a key, and ErrInvalid refuses one that no List has returned.
	//
	// It may have to walk over everything that the server has. It does so in small
	// steps with pauses, and ends with ctx.
	List(ctx context.Context, after string, most int) (page []State, next string, err error)

	// Revoke ends the hold of key whose ID is hold, whichever lease has it now. It can
	// neither be extended nor released after that; its holder learns of the loss by its
	// next extension, at a third of the lease's TTL. No other hold of the key ends, nor
	// one of the same owner. An unfinished run stays counted.
	//
	// With keep > 0, at most MaxKeep, the key stays taken by the weight of the hold for
	// keep or for the time that the hold has left in the step that ends it, whichever is
	// longer. No claim is admitted in its place before its holder has learned of the
	// loss, or has ceased to trust it. So keep = 1ms means the time that the hold has left.
	// With keep = 0 the key is free at once, and there can be two holders until the first
	// one learns of the loss.
	//
	// It fails with ErrLost if the key has no such hold: it has ended, or was never
	// there, or only waits. Nothing has changed then. After any other error but those of
	// Inspector the hold may have ended or not; the same call again tells.
	Revoke(ctx context.Context, key, hold string, keep time.Duration) error
}

// MaxKeep is the longest keep of Inspector.Revoke, and the longest TTL of a lease.
const MaxKeep = 24 * 24 * time.Hour

// MostListed is the longest page of Inspector.List.
const MostListed = 1000

// State is what a store shows of a key. It has no owner, no lease and no kept value,
// so that its reader can neither join, extend nor release what it shows; and durations
// instead of times, since the clocks of the store and its reader differ.
type State struct {
	Key     string
	Holds   []Hold // in no particular order
	Waiters []Hold // those that the store remembers, in order of arrival
	Run     *Run   // what is recorded under the key; nil: nothing
}

// Hold is what State shows of a hold, or of a claim that waits.
type Hold struct {
	// ID is HoldID of the claim's lease. It is "" of a hold that Claim.Keep or Revoke has
	// left: it has no owner, but keeps others out. Where leases are not told apart, as with plain keys, it is
	// HoldID of the claim's owner, which a Locker's claims have the same.
	ID string
	// Process is ProcessOf of the claim's lease, by which its Card is found. It is "" of a
	// hold without an ID, of a lease that no Locker has named, and where the store does
	// not know, as with plain keys.
	Process string
	// Weight is All of a hold that is exclusive. Readers and permits have less.
	Weight int64
	Fair   bool // of a waiter
	// Age is the time since the grant, or since a waiter first asked; 0 where the store
	// does not know.
	Age time.Duration
	// Left is the time until it ends if it is not extended or does not ask again, at
	// most. 0 is less than a millisecond, or not known.
	Left time.Duration
}

// Run is what State shows of a Record.
type Run struct {
	Attempt int           // how many runs have begun
	Done    bool          // finished: it has an answer
	Left    time.Duration // how long it is kept
}

// HoldID is the ID that the hold of a claim with this Claim.Lease has in logs and for
// operators: 11 letters, digits, '-' and '_'. The lease cannot be found from it.
func HoldID(lease string) string {
	if lease == "" {
		return ""
	}
	sum := sha256.Sum256([]byte("hold\x00" + lease))
	return base64.RawURLEncoding.EncodeToString(sum[:8])
}

// ProcessOf is the ID of the process (to be exact, of its Locker) that made a claim
// with this Claim.Lease, 8 letters and digits; "" for a lease that no Locker has named.
// It is for stores that show their holds to operators. Unlike the lease it is no secret.
func ProcessOf(lease string) string { return leaseid.ProcessOf(lease) }
