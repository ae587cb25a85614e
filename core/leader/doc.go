// Package leader elects one of many processes to do a piece of work.
//
//	err := leader.Run(ctx, locks, "reports", func(ctx context.Context) error {
//		return writeReports(ctx) // ctx is done when the term ends
//	})
//
// The package uses a lock with a context and a growing token as an election. A process
// campaigns by waiting for the lock on the election's key. The lease is the process's
// term, and the lease's fencing token is the number of the term. core.LeaseFromContext
// finds the lease in the context of the work. The package adds the order of campaigns,
// terms and work.
//
// # Guarantees
//
//   - The work runs under the lease's context. For one election and one Locker it never
//     runs twice at once, even if a lease is lost. The next campaign begins after the
//     work of the last term has returned.
//   - When the context of Run is done, the context of the term is done too. Run then
//     waits for the work, releases the key and returns.
//   - While the store does not answer, the process continues to campaign.
//   - After the work has failed, this process pauses, and another process can lead.
//   - After Resign this process does not campaign for a TTL. It campaigns earlier if it
//     sees that another process leads.
//
// After a term whose key was released, another process leads within milliseconds, if
// the store wakes waiters. Otherwise candidates poll. After the death of the leader's
// process, another process leads about a TTL later.
//
// # What it does not promise
//
// If the store promises one holder, a leader learns of the loss of its lease before
// another leader can be elected. A process that was paused as a whole learns of the
// loss when it runs again. It may still perform an action before it checks the context.
// Only the resource can refuse this action, by the token that the leader sends, as
// package core describes. So every term needs a token, and Run fails for a store
// without tokens. New fails too, if the store reports that it cannot give tokens.
package leader
