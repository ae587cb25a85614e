// Package taskmw runs asynq tasks under distributed locks.
//
//	mux.Use(taskmw.Lock(locks, "account", taskmw.Payload("account_id")))
//	server := asynq.NewServer(redis, taskmw.Configure(asynq.Config{Concurrency: 20}))
//	err := server.Run(mux)
//
// Tasks of one account now run one at a time, on whichever server. This holds even when
// asynq delivers a task again during its first run: after a time-out, after the loss of
// asynq's own lease, or after a shutdown. The handler finds its lease, and the fencing
// token, by core.LeaseFromContext(ctx). ctx is canceled when the lease is lost. asynq
// accepts the handler's result even after the loss, so check ctx before you commit.
//
// Code outside asynq takes the same lock with core.Key:
//
//	locks.Do(ctx, core.Key("account", "9"), settle)
//
// [Idempotent] runs a task once, while Lock runs tasks one after the other. A handler
// writes its result by [WriteResult], so that a duplicate gets the result too:
//
//	// in place of task.ResultWriter().Write(receipt)
//	err := taskmw.WriteResult(ctx, task, receipt)
//
// If a later task has to do the work again, the handler calls once.NotFinal(ctx) and
// returns nil. The handler's own task is done, and the next task under the key runs:
//
//	if receipt.Pending {
//		once.NotFinal(ctx)
//	}
//	return nil
//
// # Tasks that other tasks enqueue
//
// The name of an Idempotent and the key identify a run, for all queues and services
// whose runs are in the same store. If a handler enqueues another task with the same
// key, give the Idempotent of that task another name. Under the same name, a task of
// another type or payload is archived. A duplicate is busy until the first task is
// done.
//
// # Order
//
// A lock is not a queue. Tasks of one key run one at a time, but not in the order in
// which they were enqueued. A task that found its key busy can run after tasks that were
// enqueued later.
//
// # Keys
//
// [Payload], [Header], [TaskID] and [Type] take one value from the task, and [Join]
// combines several. Your own [KeyFunc] can find a key in any other way. A task with the
// field twice in its payload is refused, because the handler might read another value
// than the middleware.
//
// A middleware that is mounted with mux.Use applies to every task of the mux, and
// archives tasks without the key. If some tasks need no lock, wrap one handler, or a
// separate mux: mux.Handle("book", taskmw.Lock(…)(book)).
//
// # Outcomes of a task
//
//	the key is busy              by default delivered again, without using up a retry; see Busy
//	no key, or one that is bad   archived (asynq.SkipRetry)
//	a KeyFunc failed             an ordinary failure
//	the store is down            an ordinary failure; the handler does not run, see FailOpen
//	lost while the handler ran   done or failed, as the handler returns
//
// and with Idempotent
//
//	done before                            done, with the result of WriteResult
//	done before, the result not stored     done, without a result
//	its run is in progress elsewhere       as a busy key, see Busy
//	another type or payload under the key  archived
//	its run died midway, or timed out
//	while it ran, with AtMostOnce          archived
//
// Errors name the lock and never the key, because asynq stores them with the task and
// shows them in dashboards. They match core's sentinels with errors.Is.
//
// # Configure
//
// The server decides whether an error is a failure. So a middleware alone cannot
// reschedule a task without using up a retry: pass the server's configuration through
// [Configure]. On a server without Configure, each middleware notifies the Locker's
// observer of core.Misused when it first reschedules a task.
//
// # Busy keys and other tasks
//
// A busy key takes two slots of a server. One task of the key runs, and another task
// waits for up to a second. All other tasks of that key are rescheduled at once.
// Waiting tasks of all busy keys together take at most half of the slots, or the only
// slot of a server with one slot.
//
// asynq stores the time of a rescheduled task in whole seconds. It looks for
// rescheduled tasks once a tick, which lasts DelayedTaskCheckInterval. Of each key,
// slightly more tasks come back within a tick than have recently run. The other tasks
// are spread over the next 30 seconds. A key is in use nearly all the time if its tasks
// take a tick or longer. With shorter tasks or a longer tick, about two tasks of the
// key run in each tick. So leave DelayedTaskCheckInterval and TaskCheckInterval unset
// (Configure then sets 100 ms), or set each of them to the duration of a task.
//
// These limits apply only to tasks with the policy Reschedule, on a server of
// Configure, and not to a last attempt. Without the limits, each task that waits takes
// a slot.
//
// # Last attempts
//
// A task on its last attempt waits for its key until shortly before its deadline,
// because asynq v0.26.0 has no way to deliver the task again:
//
//   - handleFailedMessage in processor.go archives a task with msg.Retried >=
//     msg.Retry before it calls Config.IsFailure. Neither the error nor the
//     ErrorHandler changes that; asynq.RevokeTask deletes the task.
//   - requeue in processor.go delivers a task again without counting. It is called
//     only when a server shuts down.
//   - recoverLeaseExpiredTasks in recoverer.go archives such a task too, so abandoning
//     the task does not help.
//   - Client.Enqueue refuses a task under the same ID with ErrTaskIDConflict while the
//     first task exists. A copy under another ID is another task: TaskID and
//     asynq.Unique do not recognize the copy. If the server crashes or shuts down after
//     it has enqueued the copy, both tasks exist.
//
// These waits affect all other tasks. Suppose that one busy key has as many last
// attempts as the server has slots. The server then processes nothing until these tasks
// get the key or time out. asynq's default time-out is 30 minutes. A busy key does not
// cause a last attempt, because rescheduled tasks use up no retry. Exceptions are the
// policy Fail and a server without Configure. A task has a last attempt if its earlier
// attempts failed, or if it has no retries. So give locked tasks spare retries (asynq's
// default is 25) and an asynq.Timeout near their usual duration. Or use the policy
// Fail. A busy task on its last attempt then waits for a second and is archived.
//
// # Time
//
// The lock is held until the handler returns, even beyond asynq's time-out of the task.
// A handler should return when its context is done, so that the next attempt need not
// wait.
//
// A handler that hangs does not keep its key forever. If the task has a deadline, as by
// asynq's default, the lease gets a core.MaxHold of the time until the deadline plus
// one TTL. After that the lease is not extended, and the key is free within another
// TTL. A MaxHold in Acquire, or among the Locker's defaults, replaces this limit.
//
// A worker that dies keeps its key for a TTL, 30 seconds by default. asynq needs one to
// two minutes to notice the death, so the key does not delay the next delivery of the
// worker's task. Other tasks of the key wait for the TTL. Shut the server down before
// you close the Locker.
//
// # Scheduled jobs
//
// If each replica runs a scheduler, every replica enqueues a task at each scheduled time.
// This middleware runs the first of these tasks and skips the other tasks:
//
//	taskmw.Lock(locks, "report", taskmw.Type(), taskmw.OnBusy(taskmw.Skip),
//		taskmw.Acquire(core.KeepFor(30*time.Second)))
//
// KeepFor has to be longer than the time between the first and the last task of one
// scheduled time. It has to be shorter than the interval of the schedule, by more than
// the maximum delay of a task. Half of the interval is a good choice. The schedulers
// need a time of day ("0 * * * *"), because "@every" counts from the start of each
// scheduler. A job that fails also keeps its key, so a retry within the time of KeepFor
// is skipped too.
package taskmw
