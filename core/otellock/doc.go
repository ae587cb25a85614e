// Package otellock writes OpenTelemetry metrics and spans of locks.
//
//	tel, err := otellock.New() // the global providers
//	locks, err := core.New(store, core.WithObserver(core.Observers(tel, core.SlogObserver(nil))))
//	defer tel.Watch(locks)() // the gauges
//
// It uses OpenTelemetry's API only. A service without an SDK measures nothing, and pays
// next to nothing for it.
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
// and of the Lockers that are watched, when metrics are collected
//
//	lockkit.lease.active      {lease}      name, mode
//	lockkit.request.pending   {request}    name, mode
//	lockkit.lease.age.max     s            name
//	lockkit.request.age.max   s            name
//	lockkit.cleanup.pending   {claim}
//
// The attributes are lockkit.name, lockkit.mode, lockkit.outcome, lockkit.contended,
// lockkit.repeated and error.type. None is ever made of a key, an owner or a token.
// error.type is there after a failure only: unavailable, lost, closed, unsupported,
// invalid or _OTHER. A key that is busy and a caller that leaves are outcomes, and no
// errors.
//
//   - The outcome of an acquire is acquired; answered, when the stored result of a
//     call took its place; busy; canceled, when the caller's context is done; or
//     failed. A deadline that passes while the store does not answer is a failure of
//     the store: failed, unavailable. An acquire that joins a hold of its owner is not
//     measured.
//   - A hold is measured once for each lease, at its end: released, unconfirmed when
//     the store did not confirm the release, or lost.
//   - A call of package once ran; or was replayed, in_progress, mismatch, unreplayable
//     or indeterminate; or failed. Its duration is that of the wait and the work. It
//     is repeated if it is about the second attempt or a later one.
//   - A loss is a lease that was lost, or whose release found it gone. The counter of
//     a name begins with 0 when the name is first seen, so that the first loss is an
//     increase.
//
// At most a hundred names have series of their own, see MaxNames. The time histograms
// have bounds of their own, because those of the SDK are for milliseconds; a View sets
// others.
//
// # Cost
//
// A lock is two measurements and sends no additional command. With attributes that were
// seen before, a measurement allocates nothing. BenchmarkLocks in sdktest measures 64
// goroutines whose leases are empty, with and without Telemetry, on one Redis and two
// cores. With a key each they are 2 % slower. With one key, where a lease takes 11 µs,
// they are 11 % slower: the SDK (v1.45) takes 0.4 µs for a measurement, half of it to
// look through the attributes.
//
// # Cards
//
// TraceID puts on the card of a process the trace of each long hold or wait:
//
//	core.WithCard(core.Card{Service: "payments", Version: version, Trace: otellock.TraceID})
//
// # Spans
//
// "acquire order" is a span, after the fact, under a parent that is recorded. It is
// written for an acquire that found the key taken, failed, or took more than a
// millisecond. WithAllAcquires and WithHoldSpans add more. Its status is an error only
// if error.type is set. Losses are for the log: core.SlogObserver writes them with the
// context of the lease, so that a log bridge can correlate them.
//
// Other instrumentation can reveal more than this one: redisotel writes the arguments
// of commands into spans, keys among them, unless redisotel.WithDBStatement(false) is
// given. It shows pointers in place of most other arguments, such as owners, but does
// not promise that.
package otellock
