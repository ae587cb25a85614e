// Package otellock writes OpenTelemetry metrics and spans of locks.
//
//	tel, err := otellock.New() // the global providers
//	locks, err := core.New(store, core.WithObserver(core.Observers(tel, core.SlogObserver(nil))))
//	defer tel.Watch(locks)() // the gauges
//
// The package uses only OpenTelemetry's API. A service without an SDK records no
// metrics, and the package then costs almost nothing.
//
// # Metrics
//
//	lockkit.acquire.duration  s            name, mode, outcome, contended, error.type
//	lockkit.hold.duration     s            name, mode, outcome
//	lockkit.call.duration     s            name, outcome, repeated
//	lockkit.losses            {lease}      name
//	lockkit.extensions        {extension}  name, error.type
//	lockkit.overruns          {lease}      name
//	lockkit.cleanups          {claim}      name, error.type
//	lockkit.passes            {lease}      name
//	lockkit.misuses           {misuse}     name
//
// The gauges of the watched Lockers are read when metrics are collected:
//
//	lockkit.lease.active      {lease}      name, mode
//	lockkit.request.pending   {request}    name, mode
//	lockkit.lease.age.max     s            name
//	lockkit.request.age.max   s            name
//	lockkit.cleanup.pending   {claim}
//
// The attributes are lockkit.name, lockkit.mode, lockkit.outcome, lockkit.contended,
// lockkit.repeated and error.type. No attribute contains a key, an owner or a token.
// error.type is set only after a failure: unavailable, lost, closed, unsupported,
// invalid or _OTHER. A busy key and a canceled acquire are outcomes, not errors.
//
//   - The outcome of an acquire is acquired, answered, busy, canceled or failed. The
//     outcome is answered if a stored result of package once replaced the lease, and
//     canceled if the acquire ended because the caller's context was done. If a deadline
//     passes while the store does not answer, the store has failed: the outcome is
//     failed, and error.type is unavailable. An acquire that joins a hold of its owner
//     is not measured. Neither is an acquire that finds the finished record of a call
//     that then fails with once.ErrMismatch or once.ErrIndeterminate.
//   - A hold is measured once per lease, at the lease's end. The outcome is released,
//     unconfirmed if the store did not confirm the release, or lost.
//   - The outcome of a call of package once is ran, replayed, in_progress, mismatch,
//     unreplayable, indeterminate or failed. The call's duration includes the wait and
//     the work. lockkit.repeated is true if the call's attempt is not the first.
//   - A loss is counted for a lease that was lost, even if only the release of the
//     lease found the hold gone. The counter of a name is created with 0 when the name
//     is first used, so that the first loss is an increase.
//
// By default, at most a hundred names have their own series, see MaxNames. The time
// histograms have their own bounds, because the SDK's default bounds are for
// milliseconds. A View can change the bounds of these histograms.
//
// # Cost
//
// Acquiring and releasing a lock costs two measurements and no additional command to
// the store. A measurement with attributes that were used before allocates nothing,
// unless the SDK stores an exemplar. BenchmarkLocks in sdktest measures the cycles of
// 64 goroutines with empty leases, with and without Telemetry, on one Redis and two
// cores. With one key per goroutine, the cycles are 2 % slower with Telemetry. With one
// key for all goroutines, a lease takes 11 µs, and the cycles are 11 % slower. The SDK
// (v1.45) takes 0.4 µs per measurement, half of it for looking up the attributes.
//
// # Cards
//
// TraceID adds the trace of each long hold or wait to the process's card:
//
//	core.WithCard(core.Card{Service: "payments", Version: version, Trace: otellock.TraceID})
//
// # Spans
//
// The span "acquire order" is written after an acquire, if the acquire's context has a
// recorded span as parent. By default, only acquires that found the key taken, failed,
// or took more than a millisecond have a span. WithAllAcquires and WithHoldSpans add
// more spans. The status of an acquire's span is an error if error.type is set. The
// status of a lease's span is an error if the lease was lost. Losses have no spans of
// their own, but log entries. core.SlogObserver writes the entries with the context of
// the lease, so that a log bridge can correlate them with the trace.
//
// Other instrumentation can reveal more than this package. redisotel writes the
// arguments of commands, including keys, into spans, unless
// redisotel.WithDBStatement(false) is given. Most other arguments, such as owners,
// appear as pointers, but redisotel does not promise that.
package otellock
