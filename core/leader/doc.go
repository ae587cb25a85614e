// Package leader elects one of many processes to do a piece of work.
//
//	err := leader.Run(ctx, locks, "reports", func(ctx context.Context) error {
//		return writeReports(ctx) // ctx is done when the term ends
//	})
//
// A lock with a context and a growing token is an election. A process campaigns by
// waiting for the lock on the election's key. Its term is the lease, and the lease's
// fencing token is the number of the term: core.LeaseFromContext finds the lease under
// the context of the work. The package adds the order of events.
//
// # Guarantees
//
//   - The work runs under the lease's context, and never twice at once for one election
//     and one Locker of a process, even if a lease is lost: the next campaign begins
//     when the work of the last term has returned.
//   - When the context of Run is done, so is the context of the term. Run then waits
//     for the work, releases the key and returns.
//   - While the store does not answer, the process goes on campaigning.
//   - After the work has failed, others may lead, and this process pauses.
//   - After Resign this process does not campaign for a TTL, unless it sees before that
//     another process leads.
//
// Another process leads within milliseconds after a term that was ended in order, and
// about a TTL after the leader's process has died.
//
// # What it does not promise
//
// A leader whose lease is lost learns of it before another can be elected, where the
// store promises one holder. A process that was paused as a whole learns of it when it
// runs again, and may do one thing more before it checks. Only the resource can refuse
// that: send the token along, as package core describes. So every term has a token, and
// a store without tokens is refused.
package leader
