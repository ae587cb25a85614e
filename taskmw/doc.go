// Package taskmw runs asynq tasks under distributed locks.
//
//	mux.Use(taskmw.Lock(locks, "account", taskmw.Payload("account_id")))
//	server := asynq.NewServer(redis, taskmw.Configure(asynq.Config{Concurrency: 20}))
//	err := server.Run(mux)
//
// Tasks of one account now run one at a time, whichever server takes them up. This
// holds even when asynq delivers a task again while its first run goes on: after its
// time-out, after a lost lease, after a shutdown. The handler finds its lease, and the
// fencing token, by core.LeaseFromContext(ctx); ctx is canceled when the lease is lost.
// Even then asynq takes what the handler returns, including nil: check ctx before you
// commit.
//
// Code outside of asynq locks the same thing with core.Key:
//
//	locks.Do(ctx, core.Key("account", "9"), settle)
//
// [Idempotent] runs a task once, where Lock runs tasks one after the other. A handler writes
// its result by [WriteResult], so that a duplicate gets it too:
//
//	err := taskmw.WriteResult(ctx, task, receipt) // in place of task.ResultWriter().Write(receipt)
//
// # Order
//
// A lock is no queue: tasks of one key run one at a time, but not in the order in which
// they were enqueued. A task that found its key busy is delivered again after others.
//
// # Keys
//
// [Payload], [Header], [TaskID] and [Type] take one value from the task, [Join] several; a
// [KeyFunc] can do anything else. A task is refused if its key is ambiguous, because the
// handler might read the other value.
//
// A middleware that is mounted with mux.Use applies to every task of the mux, and
// archives those without the key. If others go without it, wrap one handler, or a mux
// of its own: mux.Handle("book", taskmw.Lock(…)(book)).
//
// # Outcomes of a task
//
//	the key is busy              as Busy says: it is delivered again, without using up a retry
//	no key, or one that is bad   archived (asynq.SkipRetry)
//	a KeyFunc failed             an ordinary failure
//	the store is down            an ordinary failure; the handler does not run, see FailOpen
//	lost while the handler ran   as the handler says
//
// and with Idempotent
//
//	done before                            done, with the result of WriteResult
//	done before, and it was not recorded   done, without a result
//	its run goes on elsewhere              as Busy says
//	another payload under the same key     archived
//	its run died midway, or timed out
//	while it ran, with AtMostOnce          archived
//
// Errors name the lock and never the key: asynq stores them with the task and shows
// them in dashboards. errors.Is finds core's sentinels in them.
//
// # Configure
//
// The server decides whether an error is a failure. So a middleware alone cannot
// reschedule a task without using up a retry: pass the server's configuration through
// [Configure]. If that was forgotten, the Locker's observer is notified of
// core.Misused, once for a middleware.
//
// # Busy keys and other tasks
//
// A busy key takes two slots of a server: one task of it runs, and another one waits
// for up to a second. All others of that key are rescheduled at once. Waiting tasks of
// many busy keys take at most half of the slots, and at least one.
//
// asynq stores the time of a rescheduled task in whole seconds, and looks for such
// tasks once a tick, DelayedTaskCheckInterval. So the number of tasks that come back
// within a tick follows the number of those that recently ran; the others are spread
// over the next 30 seconds. A key is in use nearly all the time if its tasks take a
// tick or longer. With shorter tasks or a longer tick it runs about two tasks a tick.
// So leave DelayedTaskCheckInterval and TaskCheckInterval unset, which is 100 ms with
// Configure, or set both to the time of a task.
//
// The policies Wait and Fail, a server without Configure, and last attempts are
// exceptions: all of these tasks wait in their slots.
//
// # Last attempts
//
// A task on its last attempt waits for its key for nearly as long as it has time,
// because asynq has no way to deliver it again (v0.26.0):
//
//   - handleFailedMessage in processor.go archives a task with msg.Retried >=
//     msg.Retry before it calls Config.IsFailure. Neither the error nor the
//     ErrorHandler changes that; asynq.RevokeTask deletes the task.
//   - requeue in processor.go delivers a task again without counting. It is called
//     only when a server shuts down.
//   - recoverLeaseExpiredTasks in recoverer.go archives such a task too, so that
//     abandoning it does not help.
//   - Client.Enqueue refuses a task under the same ID with ErrTaskIDConflict while the
//     first is there. A copy under another ID is another task: TaskID and asynq.Unique
//     no longer recognize it, and after a crash or a shutdown between the two steps
//     both exist.
//
// This affects all others: as many last attempts of one busy key as the server has
// slots stop that server until they get the key or time out, after 30 minutes by
// asynq's default. A busy key never causes a last attempt, because busy tasks use up no
// retry. Only tasks whose handler failed, or that have no retry at all, get there. So
// give locked tasks spare retries, asynq's default is 25, and an asynq.Timeout near
// their usual time. Or use the policy Fail, whose tasks wait for a second and are then
// archived.
//
// # Time
//
// The lock is held until the handler returns, past the time-out after which asynq
// believes the task to have failed. Handlers that return when their context is done do
// not keep the next attempt waiting.
//
// A handler that hangs does not keep its key for ever. If the task has a deadline,
// which it has by asynq's default, the lease gets a core.MaxHold of the time until then
// and one TTL. After that it is not extended, and the key is free within another TTL. A
// MaxHold in Acquire, or among the Locker's defaults, replaces it.
//
// A worker that dies keeps its key for a TTL, 30 seconds by default. asynq takes one to
// two minutes to notice, so that is no delay. Shut the server down before the Locker is
// closed.
//
// # Scheduled jobs
//
// If each replica runs a scheduler, each tick brings as many tasks. This middleware
// runs the first task of a tick and skips the others:
//
//	taskmw.Lock(locks, "report", taskmw.Type(), taskmw.OnBusy(taskmw.Skip),
//		taskmw.Acquire(core.KeepFor(30*time.Second)))
//
// KeepFor has to be longer than the tasks of one tick are apart, and shorter than a
// tick by more than a task can be late: half a tick is a good choice. The schedulers
// need a time of day ("0 * * * *"), because "@every" counts from the start of each. A
// job that fails keeps its key as well, so a retry within that time is skipped too.
package taskmw
