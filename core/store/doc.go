// Package store defines the contract between a Locker and the store of its locks. It is
// for authors of stores. Users of locks need only package core.
//
// A store is a type with the methods of [Store]. Its package imports this package. The
// test of a store imports storetest, which tests the contract. The three methods are:
//
//	func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error)
//	func (s *Store) Extend(ctx context.Context, claims []store.Claim) []store.Extension
//	func (s *Store) Release(ctx context.Context, c store.Claim) error
//
// # Who does what
//
// A store decides about one claim at a time and remembers its decisions. It never logs,
// waits until a key is free, or extends without a request. The Locker queues the
// callers of its process, asks the store, waits, asks again and extends the holds. It
// cancels the context of a lease that can no longer be trusted. Every method of a store
// is safe for concurrent use, and returns soon after its ctx is done.
//
// # The rule
//
// One rule admits every kind of lock. A [Claim] has a weight and a limit. The sum of
// the claim's weight and the live weights of other owners must not exceed the claim's
// limit:
//
//	exclusive            [All] of All
//	reader               1 of All
//	n of N permits       n of N
//
// Owner names the holder, and Lease names one hold of the holder. Holds of one owner do
// not exclude each other. Each hold expires separately, by the clock of the store. A
// claim with Via can join the holds of another owner.
//
// # Sent twice, lost, or late
//
// A claim describes the whole desired state. So sending a claim twice has the effect of
// sending it once:
//
//   - An Acquire of a lease that is held is granted again, and the hold lasts for at
//     least a TTL from the new request.
//   - Extend never creates or shortens a hold.
//   - A Release of a lease that the store does not know leaves a tombstone for the TTL.
//     So an Acquire that arrives after its Release is refused.
//
// # Errors
//
// The class of an error of Acquire or Release determines the reaction of the Locker:
//
//   - [BusyError], [ErrLost], [ErrInvalid] and [ErrUnsupported] are answers.
//   - An error that matches [ErrUnavailable] means that the call certainly changed
//     nothing.
//   - After any other error the outcome is unknown. If the Locker then gives up, it
//     releases the claim in the background. It repeats the release until the store
//     answers, for at least a minute and at least the TTL.
//
// The Locker repeats a call of which the outcome is unknown, and a call that changed
// nothing:
//
//	error           Acquire     Extend         Release
//	ErrLost         fails       hold is lost   lease was lost
//	ErrUnavailable  asks again  asks again     asks again; a later ErrLost means a loss
//	any other       asks again  asks again     asks again; without a record, a later
//	                                           ErrLost counts as released
//
// The trust in a hold ends if no extension succeeds in time.
//
// If the outcome is in doubt, return an error that matches no sentinel of this package.
// If a granted Acquire returns an error that matches ErrUnavailable, no process
// releases the hold before it expires. The text of an error names the operation and the
// reason, and never contains a key, an owner or a lease.
//
// # Tokens
//
// A claim of All is granted with a fencing token, if the store can fence. The token is
// greater than all tokens of earlier owners of the key, even after a release, an expiry
// or a restart. Each grant owns [TokenStep] tokens. The Locker uses the second and
// later tokens when it passes a hold on within its process. A store that cannot fence
// grants 0.
//
// # Waiting
//
// The store remembers a claim with Wait that it refuses as busy, for at most
// [WaiterLife]. A [Watcher] wakes such a claim when there may be room. A wake-up is
// only a hint. After it the Locker sends the claim again, and also from time to time
// without a wake-up. Claims with Fair are admitted in the order in which they first
// asked.
//
// # Records
//
// A [Record] is an answer that outlives its claim, for package once. Acquire begins a
// run, or returns a finished record. Release saves the record and releases the hold in
// one step. A store without records refuses claims with a record, with ErrUnsupported.
//
// # What a store may add
//
// Each of these features is a separate interface, with its cases in storetest:
//
//   - [Watcher] wakes waiters. Without it the waiters poll.
//   - [Checker] refuses kinds of claims that the store does not serve, before a claim
//     is sent.
//   - [Inspector] shows holds and waiters to operators, and revokes a hold.
//   - [Cards] stores a description of each process.
//   - [Prompt] limits the time of each call.
//   - [Node] describes the server, so that the store can be part of a store on several
//     servers.
//   - [Braced] accepts keys with braces.
//
// # Stability
//
// Before v1.0.0 a minor version may change the methods of a store, the types of this
// package, and the duties of a store. CHANGELOG.md lists such changes under Changed or
// Removed. A store that passes the storetest of a version serves the Locker of that
// version.
//
// From v1.0.0 on, a minor version changes no method and no duty of the three methods. It
// may add an optional interface, a field whose zero value keeps the old meaning, and a
// case of storetest for a duty that is documented here. So name the fields in composite
// literals.
//
// # How to begin
//
// Write Acquire, Extend and Release for exclusive claims, and refuse all other claims
// with ErrUnsupported. The store in stranger_test.go beside this file does that. Run
// storetest with the missing features in Without. Then add the features, and remove
// each added feature from Without. Package memstore is a complete store of a few
// hundred lines. It uses core/internal/keystate, which has the rule of admission in Go.
package store
