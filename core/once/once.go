package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// maxValue bounds a stored answer. It is less than any store refuses, because an answer
// that cannot be saved makes its run look dead.
const maxValue = 32 << 20

// Once runs calls once and stores their answers. It is safe for concurrent use, and
// needs no Close.
type Once struct {
	config
	locker *core.Locker
	label  string // in messages and events; empty: the call's name
}

// Answer is the result of a run.
type Answer struct {
	// Value is the answer, for this caller and all later ones. A value above 32 MiB
	// makes the run Unreplayable.
	Value []byte
	// Unreplayable is set if the work is done, but Value is for this caller only, or
	// not the whole answer. Later callers get ErrUnreplayable.
	Unreplayable bool
}

// Outcome is the result of Do for a call.
type Outcome struct {
	Value    []byte // the answer
	Replayed bool   // the answer is that of an earlier run: fn was not called
	Attempt  int    // the run that the outcome is about, counted from 1; 0 if unknown
}

// New makes a Once whose answers are kept in the store of l. It sends nothing.
//
// New fails with core.ErrInvalid if l or an option is nil or an option is not allowed,
// and with core.ErrUnsupported if the store keeps no records.
func New(l *core.Locker, opts ...Option) (*Once, error) {
	if l == nil {
		return nil, fmt.Errorf("new once: locker is nil: %w", core.ErrInvalid)
	}
	o := &Once{config: config{retain: defaultRetain, acquire: []core.AcquireOption{core.Wait(0)}}, locker: l}
	return o.WithOptions(opts...)
}

// Do returns the stored answer of c, after one call to the store, or runs fn and stores
// its answer. By default it does not wait for a run that is in progress elsewhere;
// Acquire(core.Wait(d)) makes it wait.
//
// fn runs under the context of a lease, which is extended during the run. The context
// is done with cause core.ErrLost when this process can no longer trust the lease.
// AttemptFromContext returns the number of the attempt there. core.LeaseFromContext
// does not find the lease.
//
// If fn returns an error, Do returns that error, and the call can be made again. The
// same holds if fn panics, and the panic goes on. AtMostOnce changes that. An error
// marked by Withdraw takes the run back: it was no attempt.
//
// If fn succeeded, its answer is saved even after the lease was lost and after the
// Locker was closed, as long as no other run of the call has begun. If it could not be
// saved, Do returns both the Outcome and an error:
//   - core.ErrLost, if another run has begun or has saved its answer,
//   - core.ErrUnavailable, if the store did not confirm. Unless the Locker was closed,
//     the saving is then retried in the background, and the answer may be stored after
//     all.
//
// An answer of more than 512 KiB is sent only once if the store does not answer,
// because its server may refuse that length by closing the connection. The run is then
// done, and later callers get ErrUnreplayable. An error of fn that could not be saved
// matches these errors too.
//
// If fn has called Commit, Do returns the committed answer, and an error if none was
// committed, whatever fn returns. If the store did not answer, the error matches
// core.ErrUnavailable, and it is unknown whether an answer was committed.
//
// If ctx is done before fn has begun, fn is not run, which is no attempt, and the error
// matches the cause of ctx. Do fails without having run fn
//   - with ErrInProgress, ErrMismatch, ErrIndeterminate or ErrUnreplayable,
//   - with core.ErrInvalid if c is not allowed, before anything is sent,
//   - with core.ErrUnavailable and core.ErrClosed,
//   - with core.ErrUnsupported if the store keeps no records, or has a record that this
//     program cannot read: it is neither replayed nor run again.
func (o *Once) Do(ctx context.Context, c Call, fn func(ctx context.Context) (Answer, error)) (Outcome, error) {
	if fn == nil {
		return Outcome{}, fmt.Errorf("once: fn is nil: %w", core.ErrInvalid)
	}
	if err := c.check(); err != nil {
		return Outcome{}, err
	}
	t := telling{ctx: ctx, locker: o.locker}
	defer t.notify()
	out, err := o.do(ctx, &c, fn, &t)
	t.ended(out, err)
	return out, err
}

// do implements Do for a call that is allowed. It records in t whether fn ran.
func (o *Once) do(ctx context.Context, c *Call, fn func(ctx context.Context) (Answer, error), t *telling) (Outcome, error) {
	lease, kept, err := o.begin(ctx, c, &t.event)
	t.begun = time.Now()
	if err != nil {
		return Outcome{}, err
	}
	r, err := decode(kept.Value)
	if err == nil {
		err = r.check(c)
	}
	if err == nil && r.state.finished() != (lease == nil) {
		err = recordError("is finished in one place and not in the other")
	}
	switch {
	case lease == nil && err == nil:
		return r.answer(o.labelOf(c), kept.Attempt)
	case err == nil && kept.Attempt > r.settled+1 && o.atMostOnce:
		// Whether this can be saved or not, the next caller finds the same.
		r.state = indeterminate
		_ = lease.Finish(ctx, o.settled(c, r.state, kept.Attempt-1, nil))
		return r.answer(o.labelOf(c), kept.Attempt-1)
	case err == nil && ctx.Err() == nil:
		return o.run(ctx, lease, c, kept.Attempt, fn, t)
	case err == nil:
		err = fmt.Errorf("%w: the request ended before the work started: %w", core.ErrBusy, context.Cause(ctx))
		fallthrough
	case lease != nil:
		// The work has not begun, so the claim does not count as an attempt.
		_ = lease.Withdraw(ctx)
	}
	return Outcome{}, fmt.Errorf("once %s: %w", o.labelOf(c), err)
}

// begin claims the run of c. e receives the facts for the observer.
func (o *Once) begin(ctx context.Context, c *Call, e *core.Event) (*core.Lease, store.Record, error) {
	first := store.Record{Value: encode(c, begun, 0, nil), Retain: o.unfinished()}
	opts := append(o.acquire[:len(o.acquire):len(o.acquire)], core.Name(o.labelOf(c)), engine.Report(e))
	ended := ctx.Err() != nil
	lease, kept, err := o.locker.Begin(ctx, c.storeKey(), first, opts...)
	if errors.Is(err, core.ErrBusy) && !errors.Is(err, core.ErrUnavailable) && !ended {
		err = fmt.Errorf("%w: %w", ErrInProgress, err)
	}
	return lease, kept, err
}

// unfinished returns how long an unfinished run is retained.
func (o *Once) unfinished() time.Duration { return max(o.retain, defaultRetain) }

// answer returns the result that a finished record contains.
func (r *record) answer(label string, attempt int) (Outcome, error) {
	switch r.state {
	case unreplayable:
		return Outcome{Attempt: attempt}, fmt.Errorf("once %s: %w", label, ErrUnreplayable)
	case indeterminate:
		return Outcome{Attempt: attempt}, fmt.Errorf("once %s: %w", label, ErrIndeterminate)
	}
	return Outcome{Value: r.value, Replayed: true, Attempt: attempt}, nil
}

// settled returns the record of a run with a known end.
func (o *Once) settled(c *Call, s state, attempt int, value []byte) store.Record {
	return store.Record{Value: encode(c, s, attempt, value), Attempt: attempt, Done: s.finished(), Retain: o.retain}
}
