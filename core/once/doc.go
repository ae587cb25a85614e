// Package once returns one answer to all duplicates of a request for work. Duplicates
// come from clients that retry, or from queues that redeliver.
//
//	runs, err := once.New(locks) // a *core.Locker; its store keeps the answers
//	call := once.Call{Name: "charge", Scope: tenant, Key: id, Fingerprint: sum[:]}
//	out, err := runs.Do(ctx, call, func(ctx context.Context) (once.Answer, error) {
//		receipt, err := charge(ctx)
//		return once.Answer{Value: receipt}, err
//	})
//
// A run is executed under a lease, which is extended during the run. One step saves the
// run's answer and releases the lease, if no other run has begun or saved in the
// meantime. So a holder that was paused for too long never overwrites its successor's
// answer. If the holder has no successor, the answer is stored even though the lease
// was lost. A first run needs two calls to the store, a replay one.
//
// # Records
//
// The record of a call holds its name, scope, key and fingerprint, its state, the
// number of attempts, and the answer. The record that a call finds decides its result:
//
//	nothing          fn runs, as attempt 1
//	in progress      ErrInProgress, or with Acquire(core.Wait(d)) the other run's answer
//	failed           fn runs, as the next attempt; NotFinal leaves this state too
//	died midway      fn runs, as the next attempt; with AtMostOnce ErrIndeterminate
//	done             the answer
//	unreplayable     ErrUnreplayable
//	indeterminate    ErrIndeterminate
//
// A call with another fingerprint gets ErrMismatch. While a run is in progress, its
// record is not read. So such a call gets ErrInProgress, and ErrMismatch only when the
// run is no longer in progress. A run is in progress as long as its lease is held. If
// the process of a run dies, the run stays in progress for the rest of the TTL. The
// time for which an answer is stored does not depend on the lease, see Retain.
//
// # Guarantees and limits
//
// A stored answer is the answer to all duplicates, until the time of Retain has passed.
// This does not mean that fn is executed only once. A process can die after the effect
// of fn and before its answer is saved. Then no lock can find out whether the run had
// its effect. By default such a run is run again. In fn, AttemptFromContext returns the
// number of the attempt. If the attempt is not the first, fn can ask the payment
// provider before it charges again, or use the same idempotency key there. With
// AtMostOnce, a run that died is not run again until the time of Retain has passed.
//
// If a process is paused inside fn until its lease has expired, another run can begin.
// fn is then executed twice. The store then refuses the answer of the paused process,
// but the effects of fn still happen. Only a resource that compares fencing tokens or
// its own idempotency keys can refuse the effects.
//
// If the effect consists of rows in the database of the runs, the work can save its
// answer in its own transaction, see [Commit]. A process that dies then leaves both the
// effect and the answer, or neither.
//
// A store that loses writes in a failover can lose answers too.
package once
