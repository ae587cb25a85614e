// Package store is the contract between a Locker and the store of its locks. It is for
// authors of stores. Users of locks need package core only.
//
// A store is a type with the three methods of [Store]. It imports this package, and its
// test imports storetest, which is the contract in the form of tests:
//
//	func (s *Store) Acquire(ctx context.Context, c store.Claim) (store.Grant, error)
//	func (s *Store) Extend(ctx context.Context, claims []store.Claim) []store.Extension
//	func (s *Store) Release(ctx context.Context, c store.Claim) error
//
// # Who does what
//
// A store decides about one claim at a time and remembers its decisions. It never waits
// for a key, asks again, extends on its own or logs. The Locker does all that: it
// queues the callers of its process, asks, waits, asks again and extends the holds. It
// cancels the context of a lease that cannot be trusted any more. Every method of a
// store is safe for concurrent use, and returns soon after its ctx is done.
//
// # The rule
//
// One rule admits every kind of lock. A [Claim] has a weight and a limit. The live weights
// of other owners plus its own must not exceed its limit:
//
//	exclusive            [All] of All
//	reader               1 of All
//	n of N permits       n of N
//
// Owner names the holder, Lease one hold of the holder. Holds of one owner do not
// exclude each other. Each hold expires for itself, by the clock of the store. A claim
// with Via joins the hold of another owner.
//
// # Sent twice, lost, or late
//
// A claim is whole and absolute, so that sending it twice changes nothing:
//
//   - Acquire of a lease that is held is granted again, and lasts for a TTL from then.
//   - Extend never creates a hold, and never shortens one.
//   - Release of a lease that the store does not know leaves a tombstone for the TTL. An
//     Acquire that arrives after its Release is refused.
//
// # Errors
//
// The Locker acts by the class of an error:
//
//   - [BusyError], [ErrLost], [ErrInvalid] and [ErrUnsupported] are answers.
//   - An error that matches [ErrUnavailable] says that the call certainly changed nothing.
//   - After any other error the outcome is unknown, and the Locker releases the claim until
//     the store answers.
//
// When in doubt, return an error that matches none of them. An error that matches
// ErrUnavailable for a call that was granted leaves a lock behind. An error names the
// operation and its reason, and never contains a key, an owner or a lease.
//
// # Tokens
//
// A claim of All is granted with a fencing token, if the store can fence. The token is
// greater than all tokens of earlier grants of the key, even after a release, an expiry
// or a restart. Each grant owns [TokenStep] tokens. The Locker uses the others where it
// passes a hold on within its process. A store that cannot fence grants 0.
//
// # Waiting
//
// A claim with Wait asks a busy store to remember it, for at most [WaiterLife]. A
// [Watcher] wakes such a claim when there may be room. A wake-up is a hint: the claim
// asks again, and also asks from time to time without one. Of claims with Fair, the
// first one to ask is the first one to be admitted.
//
// # Records
//
// A [Record] is an answer that outlives its claim, for package once. Acquire begins a
// run, or returns a finished record. Release saves the record and releases the hold in
// one step. A store that keeps no records refuses such claims with ErrUnsupported.
//
// # What a store may add
//
// Each of these is an interface of its own, with its cases in storetest:
//
//   - [Watcher] wakes waiters. Without it they poll.
//   - [Checker] refuses claims of a kind that the store does not serve before one is sent.
//   - [Inspector] shows holds and waiters to operators, and revokes a hold.
//   - [Cards] keeps a description of each process.
//   - [Prompt] bounds each call by itself.
//   - [Node] describes the server, so that the store can be one of several.
//   - [Braced] takes keys with braces.
//
// # How to begin
//
// Write Acquire, Extend and Release for exclusive claims, and refuse all others with
// ErrUnsupported, as the store in stranger_test.go beside this file does. Run storetest
// with the rest in Without, and take one feature after the other out of it. Package
// memstore is a whole store in a few hundred lines.
package store
