// Package leader keeps one of many processes at a piece of work.
//
//	err := leader.Run(ctx, locks, "reports", func(ctx context.Context) error {
//		return writeReports(ctx) // ctx ends when the term does
//	})
//
// A lock with a context that ends and a token that grows is an election. A
// process campaigns by waiting for the lock on the election's key; its term is
// the lease, and the lease's fencing token is the number of the term:
// core.LeaseFromContext finds it under the context of the work. What the package
// adds is the order of events.
//
// # What it promises
//
//   - The work runs under the lease's context, and never twice at once for one
//     election and one Locker of a process, whatever is lost: the next campaign
//     begins when the work of the last term has returned.
//   - When the context of Run ends, so does the term; then Run waits for the work;
//     then it gives the key back; then it returns.
//   - While the store does not answer, the process goes on campaigning.
//   - After the work has failed, others may lead, and this process pauses.
//   - After Resign this process does not campaign for a TTL, unless it sees before
//     that another one leads.
//
// Another process leads within milliseconds after a term that was ended in order,
// and about a TTL after the leader's process has died.
//
// # What it does not promise
//
// A leader whose lease is lost is told before another can be elected, where the
// store promises one holder. A process that is paused as a whole is told when it
// runs again, and may do one thing more before it looks. Only the resource can
// refuse that: send the token along, as package core says. So every term has a
// token, and a store without tokens is refused.
package leader
