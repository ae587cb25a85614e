// Package once gives one answer to all duplicates of a request for work, from clients
// that retry or queues that deliver again.
//
//	runs, err := once.New(locks) // a *core.Locker; its store keeps the answers
//	out, err := runs.Do(ctx, once.Call{Name: "charge", Scope: tenant, Key: id, Fingerprint: sum[:]},
//		func(ctx context.Context) (once.Answer, error) {
//			receipt, err := charge(ctx)
//			return once.Answer{Value: receipt}, err
//		})
//
// A run is claimed and executed under a lease, which is extended during the run. One
// step saves the run's answer and releases the lease, if no other run has begun or has
// saved in the meantime. So a holder that was paused for too long never overwrites its
// successor's answer. If there is no successor, its answer is stored although the lease
// was lost. A first run costs two calls to the store, a replay one.
//
// # Records
//
// The record of a call holds its name, scope, key and fingerprint, its state, the
// number of attempts, and the answer. The record that a call finds decides its result:
//
//	nothing          fn runs, as attempt 1
//	in progress      ErrInProgress, or with Acquire(core.Wait(d)) the other's answer
//	failed           fn runs, as the next attempt; NotFinal leaves this state too
//	died midway      fn runs, as the next attempt; with AtMostOnce ErrIndeterminate
//	done             the answer
//	unreplayable     ErrUnreplayable
//	indeterminate    ErrIndeterminate
//
// A call with another fingerprint gets ErrMismatch. The exception is a run in progress,
// whose record is not read: such a call gets ErrInProgress too, and ErrMismatch once
// the run has finished. A run is in progress for as long as its lease: for its TTL
// after the process died. The time for which an answer is stored does not depend on
// that, see Retain.
//
// # Guarantees and limits
//
// One answer is visible, to all callers and however often they ask. One execution is a
// different matter. A process that dies between the effect of fn and the saving of its
// answer leaves a run of which it is unknown whether it took place, and no lock can
// find out. By default such a run is run again. AttemptFromContext reports to fn that
// it is not the first attempt, so that fn can ask the payment provider before it
// charges again, or use the same idempotency key there. AtMostOnce never runs it again.
//
// The same applies to a holder that was paused past its lease inside fn: if another run
// has begun by then its answer is refused, but not its effects. Only a resource that
// compares fencing tokens, or keys of its own, absorbs those.
//
// Where the effect is rows of the database that keeps the runs, the work can save its
// answer in its own transaction, see [Commit]. Then the effect is there if the answer
// is, and a process that dies leaves both or neither.
//
// A store that loses writes in a failover can lose answers too.
package once
