// Package once gives work that is asked for more than once, by clients that
// retry or queues that deliver again, one answer.
//
//	runs, err := once.New(locks) // a *core.Locker; its store keeps the answers
//	out, err := runs.Do(ctx, once.Call{Name: "charge", Scope: tenant, Key: id, Fingerprint: sum[:]},
//		func(ctx context.Context) (once.Answer, error) {
//			receipt, err := charge(ctx)
//			return once.Answer{Value: receipt}, err
//		})
//
// A run is claimed and executed under a lease that is extended while it goes on.
// One step saves its answer and gives the lease up, if no other run has begun or
// has saved in the meantime. So a holder that was paused for too long never
// overwrites its successor's answer, and if there is no successor its answer is
// kept although the lease was lost. A first run costs two calls to the store, a
// replay one.
//
// # What is kept
//
// The record of a call holds its name, scope, key and fingerprint, its state,
// the number of attempts, and the answer. What a call finds decides:
//
//	nothing          fn runs, as attempt 1
//	in progress      ErrInProgress, or with Acquire(core.Wait(d)) the other's answer
//	failed           fn runs, as the next attempt; NotFinal leaves this state too
//	died midway      fn runs, as the next attempt; with AtMostOnce ErrIndeterminate
//	done             the answer
//	unreplayable     ErrUnreplayable
//	indeterminate    ErrIndeterminate
//
// and ErrMismatch if the fingerprint is another one, except while a run is in
// progress: its record is not read then, so a call with another fingerprint gets
// ErrInProgress too, and ErrMismatch when the run is over. In progress lasts as long
// as the lease: its TTL after the process died. How long an answer is kept is
// apart from that, see Retain.
//
// # What it promises, and what not
//
// One answer is visible, to all callers and however often they ask. One execution is a
// different matter: a process that dies between the effect of fn and the saving
// of its answer leaves a run of which it is not known whether it took place, and no
// lock can tell. By default such a run is run again, and AttemptFromContext
// tells fn that it is not the first, so that it can ask the payment provider
// before it charges again, or use the same idempotency key there. AtMostOnce
// never runs it again. The same goes for a holder that was paused past its lease
// inside fn: if another run has begun by then its answer is refused, but not its
// effects. Only a resource that compares fencing tokens, or keys of its own, absorbs
// those.
//
// Where the effect is rows of the database that keeps the runs, the work can save its answer
// in its own transaction, see [Commit]: then the effect is there if the answer is, and a
// process that dies leaves both or neither.
//
// A store that loses writes in a failover can lose answers too.
package once
