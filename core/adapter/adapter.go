// Package adapter has what packages need that put locks in front of something else, as
// httpmw, grpcmw, taskmw, leader and named do. Users of locks need none of it.
//
// An adapter is built once and used for each request. It checks its options when it is
// built ([Check], [Limits]; [CheckRun] and [Terms] if it answers by package once), and
// panics or fails then. For a request it acquires a lease or calls once, and notifies the
// observer of its Locker, since it has none ([Observe], [Report], [OfHold]). Where a store
// is down, [FailOpen] decides whether the handler may run all the same.
//
// No event may have a key, an owner or a token in it, and no error that leaves the program
// a key: [core.BusyError.WithoutKey] leaves that out.
package adapter

import (
	"context"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/hooks"
	"github.com/lockkit/lockkit/core/once"
)

var (
	engine = hooks.Core.(hooks.Locker[*core.Locker, core.Event, core.AcquireOption])
	runs   = hooks.Once.(hooks.Runs[*once.Once, *core.Locker, core.AcquireOption])
)

// Check reports whether an acquire with opts, on top of the defaults of l, is allowed,
// and returns how long it may wait: 0 for one attempt, negative if only its ctx limits
// it. It sends nothing. It fails with core.ErrInvalid, and with core.ErrUnsupported for
// options that the store does not serve, if the store is a store.Checker.
func Check(l *core.Locker, opts ...core.AcquireOption) (wait time.Duration, err error) {
	return engine.Check(l, opts...)
}

// CheckRun checks options like Check, for Locker.Begin, which package once uses.
func CheckRun(l *core.Locker, opts ...core.AcquireOption) (wait time.Duration, err error) {
	return engine.CheckRun(l, opts...)
}

// Limits returns the TTL and the MaxHold (0 if none) of an acquire with opts on top of the
// defaults of l. An adapter whose requests have a deadline derives a MaxHold from that
// deadline. Limits fails with core.ErrInvalid if Check does.
func Limits(l *core.Locker, opts ...core.AcquireOption) (ttl, maxHold time.Duration, err error) {
	return engine.Limits(l, opts...)
}

// FailOpen reports whether an adapter with an option of that name may run its handler
// without the lock name, after an acquire under ctx failed with err. The returned context
// is for the handler: core.Unlocked is true for it. Only a store that could not be asked
// (core.ErrUnavailable) allows it. A key that was busy or lost, a closed Locker and a ctx
// that is done do not. If the handler may run, the observer is notified with
// core.RanUnlocked.
func FailOpen(ctx context.Context, l *core.Locker, name string, err error) (context.Context, bool) {
	return engine.FailOpen(l, ctx, name, err)
}

// Observe notifies the observer of l, if there is one.
func Observe(ctx context.Context, l *core.Locker, e core.Event) { engine.Observe(l, ctx, e) }

// OfHold returns a copy of e about the hold with this ID, an ID in the form of Lease.ID. It
// is for an event about a hold for which the caller has no lease.
func OfHold(e core.Event, id string) core.Event { return engine.OfHold(e, id) }

// Report has an acquire write into e what its events say of it: Name, Mode, Contended,
// Reentered, Wait and the hold. It is for packages that notify with more about what they
// acquire, by Observe. e is written once, before the acquire returns, and not if the
// acquire is refused as invalid or closed.
func Report(e *core.Event) core.AcquireOption { return engine.Report(e) }

// Terms returns the Locker of o and the acquire options with which o claims its runs, without
// the default core.Wait(0). So an adapter can have another default.
func Terms(o *once.Once) (*core.Locker, []core.AcquireOption) { return runs.Terms(o) }

// WithLabel returns o with another name for its calls in messages and events, in place of
// Call.Name. The calls and their records are the same. An empty label is none. Do fails
// with core.ErrInvalid if label is not of the form [A-Za-z0-9._-]+.
func WithLabel(o *once.Once, label string) *once.Once { return runs.WithLabel(o, label) }

// AttemptAsked reports whether once.AttemptFromContext was called under ctx, the context
// of a run. If so, something in the run may have used the number, and has to see another
// one next time: the adapter must not withdraw the run for what came after that.
func AttemptAsked(ctx context.Context) bool { return runs.AttemptAsked(ctx) }

// IsFinal reports whether the answer of the run of ctx counts as final: once.NotFinal has
// not been called under ctx. An adapter around whose run there is another one for the same
// answer passes the mark on, by once.NotFinal with the outer context.
func IsFinal(ctx context.Context) bool { return runs.IsFinal(ctx) }

// Committed reports whether the work of the run of ctx has called once.Commit. If so,
// the database decides about its answer, and Do returns that answer: the result of the
// work must not be sent.
func Committed(ctx context.Context) bool { return runs.Committed(ctx) }

// Withdrawn reports whether once.Withdraw has marked err, the error of a handler that
// has done nothing, and returns the marked error for the caller. The adapter returns
// err from its run, even if it would store another result.
func Withdrawn(err error) (marked error, ok bool) { return runs.Withdrawn(err) }
