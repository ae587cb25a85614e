// Package adapter has functions for packages that put locks in front of handlers or
// other work, such as httpmw, grpcmw, taskmw, leader and named. Users of locks do not
// need it.
//
// An adapter is built once and used for each request. When it is built, it checks its
// options by [Check] and [Limits]. If it uses package once, it checks them by
// [CheckRun] and [Terms]. With bad options it panics or fails. For each request it
// acquires a lease or calls once. An adapter has no observer, and notifies the observer
// of its Locker by [Observe], [Report] and [OfHold]. If the store is unavailable,
// [FailOpen] decides whether the handler may run without its lock.
//
// An event must not contain a key, an owner or a token. An error that leaves the
// program must not contain a key: [core.BusyError.WithoutKey] removes the key.
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

// Check checks opts, with the defaults of l, and sends nothing. It returns the wait of
// such an acquire for a busy key: 0 for one attempt, or negative if only ctx limits the
// wait. Check fails with core.ErrInvalid if an option is not allowed. If the store is a
// store.Checker, Check fails with core.ErrUnsupported for options that the store does
// not serve.
func Check(l *core.Locker, opts ...core.AcquireOption) (wait time.Duration, err error) {
	return engine.Check(l, opts...)
}

// CheckRun checks options like Check, for Locker.Begin, which package once uses.
func CheckRun(l *core.Locker, opts ...core.AcquireOption) (wait time.Duration, err error) {
	return engine.CheckRun(l, opts...)
}

// Limits returns the TTL and the MaxHold (0 without a limit) of an acquire with opts
// and the defaults of l. An adapter whose requests have a deadline derives a MaxHold
// from the deadline. Limits fails with core.ErrInvalid if Check does.
func Limits(l *core.Locker, opts ...core.AcquireOption) (ttl, maxHold time.Duration, err error) {
	return engine.Limits(l, opts...)
}

// FailOpen reports whether the handler may run without the lock, after an acquire under
// ctx failed with err. It is for adapters with an option FailOpen. The handler may run
// only if err matches core.ErrUnavailable. It may not run if err also matches
// core.ErrBusy, core.ErrLost or core.ErrClosed, or if ctx is done. If the handler may
// run, FailOpen notifies the observer of core.RanUnlocked for the lock name. The
// returned context is then for the handler, and core.Unlocked returns true for it.
// Otherwise FailOpen returns ctx.
func FailOpen(ctx context.Context, l *core.Locker, name string, err error) (context.Context, bool) {
	return engine.FailOpen(l, ctx, name, err)
}

// Observe notifies the observer of l, if l has an observer.
func Observe(ctx context.Context, l *core.Locker, e core.Event) { engine.Observe(l, ctx, e) }

// OfHold returns a copy of e about the hold with this ID, which has the form of
// Lease.ID. It is for a caller that has no lease of the hold.
func OfHold(e core.Event, id string) core.Event { return engine.OfHold(e, id) }

// Report returns an option with which an acquire writes the data of its own events into
// e: Name, Mode, Contended, Reentered, Wait and the hold. It is for packages that
// notify the observer of further events about an acquire, by Observe. The acquire
// writes e once, before it returns. It does not write e if an argument is invalid, or
// if the Locker was closed before.
func Report(e *core.Event) core.AcquireOption { return engine.Report(e) }

// Terms returns the Locker of o and the acquire options with which o claims its runs,
// without the default core.Wait(0). So an adapter can have another default.
func Terms(o *once.Once) (*core.Locker, []core.AcquireOption) { return runs.Terms(o) }

// WithLabel returns a copy of o whose calls have the name label in messages and events,
// in place of Call.Name. The keys and the records of the calls are the same. If label
// is empty, the name is Call.Name. Do fails with core.ErrInvalid if label is not of the
// form [A-Za-z0-9._-]+, or has more than 64 bytes.
func WithLabel(o *once.Once, label string) *once.Once { return runs.WithLabel(o, label) }

// AttemptAsked reports whether once.AttemptFromContext was called under ctx, the
// context of a run. If so, code in the run may have used the attempt number, so the
// next run needs another number. The adapter must then not withdraw the run because of
// a later refusal.
func AttemptAsked(ctx context.Context) bool { return runs.AttemptAsked(ctx) }

// IsFinal reports whether the answer of the run of ctx is final: once.NotFinal has not
// marked it. An adapter calls IsFinal before the function that it passes to Do has
// returned. If an outer run has the same answer, the adapter passes the mark on, by
// once.NotFinal with the outer context.
func IsFinal(ctx context.Context) bool { return runs.IsFinal(ctx) }

// Committed reports whether the work of the run of ctx has called once.Commit. An adapter
// calls Committed before the function that it passes to Do has returned. If Committed
// returns true, the database decides about the answer. The adapter then sends the answer
// or the error that Do returns, and not the result of the work.
func Committed(ctx context.Context) bool { return runs.Committed(ctx) }

// Withdrawn reports whether once.Withdraw has marked err, the error of a handler that
// has done nothing. It returns the error without the mark, for the caller. The adapter
// returns err itself from its run, even if it would otherwise store a result.
func Withdrawn(err error) (marked error, ok bool) { return runs.Withdrawn(err) }
