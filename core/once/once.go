package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// maxValue is the maximum length of a stored answer. maxValue is below the limit of
// redisstore (64 MiB) and the default limit of MySQL. A run whose answer cannot be
// saved looks like a run that died.
const maxValue = 32 << 20

// Once runs the work of calls and stores their answers. It is safe for concurrent use,
// and needs no Close.
type Once struct {
	config
	locker *core.Locker
	label  string // the label in messages and events; if empty, the call's name
}

// Answer is the result of a run.
type Answer struct {
	// Value is the answer, for this caller and all later callers. A value of more than
	// 32 MiB makes the run Unreplayable.
	Value []byte
	// Unreplayable means that the work is done, but Value must not be stored. Value is
	// for this caller only, or is incomplete. Later callers get ErrUnreplayable.
	Unreplayable bool
}

// Outcome is the result of Do for a call.
type Outcome struct {
	Value    []byte // the answer
	Replayed bool   // the answer is of an earlier run, and fn was not called
	Attempt  int    // the number of the run, counted from 1; 0 if unknown
}

// New returns a Once that stores its answers in the store of l. It sends nothing.
//
// New fails with core.ErrInvalid if l or an option is nil, or if an option is not
// allowed. It fails with core.ErrUnsupported if the store has no records.
func New(l *core.Locker, opts ...Option) (*Once, error) {
	if l == nil {
		return nil, fmt.Errorf("once: new: locker is nil: %w", core.ErrInvalid)
	}
	o := &Once{config: config{retain: defaultRetain, acquire: []core.AcquireOption{core.Wait(0)}}, locker: l}
	return o.WithOptions(opts...)
}

// Do returns the stored answer of c, after one call to the store. If c has no stored
// answer, Do runs fn and stores the answer of fn. By default Do does not wait for a run
// that is in progress elsewhere; Acquire(core.Wait(d)) makes it wait.
//
// fn runs under the context of a lease, which is extended during the run. The context
// is done with cause core.ErrLost when this process can no longer trust the lease.
// Under this context AttemptFromContext returns the number of the attempt.
// core.LeaseFromContext does not find the lease.
//
// If fn returns an error, Do returns that error, and the call can be made again. With
// AtMostOnce, ErrIndeterminate is an exception. If fn panics, the panic continues, and
// the call can be made again unless AtMostOnce is set. If fn returns an error marked by
// Withdraw, the run is undone and does not count as an attempt.
//
// If fn succeeds, its answer is saved. It is not saved if another run of the call has
// begun, or if NotFinal has marked the answer. The answer is saved even if the lease
// was lost or the Locker was closed. If the answer could not be saved, Do returns both
// the Outcome and an error:
//   - core.ErrLost, if another run has begun or saved its answer,
//   - core.ErrUnavailable, if the store did not confirm the save. Unless the Locker was
//     closed, the save is then retried in the background, so the answer may still be
//     stored.
//
// A server can refuse a long answer by closing the connection. So an answer of more
// than 512 KiB is sent only once if the store does not answer. The run is then saved as
// done without its answer, and later callers get ErrUnreplayable. If fn failed and the
// failure could not be saved, the error of Do also matches core.ErrLost or
// core.ErrUnavailable.
//
// If fn has called Commit, Do returns the committed answer, whatever fn returns. If no
// answer was committed, Do returns an error. Commit lists two exceptions. If the store
// did not answer, the error matches core.ErrUnavailable, and it is unknown whether an
// answer was committed.
//
// If ctx is done before fn has begun, fn is not run, and no attempt is counted. The
// error then matches the cause of ctx. Do fails without running fn
//   - with ErrInProgress, ErrMismatch, ErrIndeterminate or ErrUnreplayable,
//   - with core.ErrInvalid if c is not allowed, before anything is sent,
//   - with core.ErrUnavailable if the store does not answer, and with core.ErrClosed if
//     the Locker is closed,
//   - with core.ErrUnsupported if the store has no records, or has a record that this
//     program cannot read. In that case nothing is replayed or run.
func (o *Once) Do(ctx context.Context, c Call, fn func(ctx context.Context) (Answer, error)) (Outcome, error) {
	if fn == nil {
		return Outcome{}, fmt.Errorf("once: do: fn is nil: %w", core.ErrInvalid)
	}
	if err := c.check(); err != nil {
		return Outcome{}, err
	}
	t := notice{ctx: ctx, locker: o.locker}
	defer t.notify()
	out, err := o.do(ctx, &c, fn, &t)
	t.ended(out, err)
	return out, err
}

// do implements Do for a valid call. It records in t whether fn ran.
func (o *Once) do(ctx context.Context, c *Call, fn func(ctx context.Context) (Answer, error), t *notice) (Outcome, error) {
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
		// The result of Finish does not matter: if Finish fails, the next caller finds
		// the same state again.
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
	return Outcome{}, fmt.Errorf("once: do %q: %w", o.labelOf(c), err)
}

// begin claims the run of c. It fills e for the observer.
func (o *Once) begin(ctx context.Context, c *Call, e *core.Event) (*core.Lease, store.Record, error) {
	first := store.Record{Value: encode(c, begun, 0, nil), Retain: o.unfinished()}
	opts := append(o.acquire[:len(o.acquire):len(o.acquire)], core.Name(o.labelOf(c)), engine.Report(e))
	ended := ctx.Err() != nil
	lease, kept, err := o.locker.Begin(ctx, c.storeKey(), first, opts...)
	if errors.Is(err, core.ErrBusy) && !errors.Is(err, core.ErrUnavailable) && !ended {
		err = fmt.Errorf("once: do %q: %w", o.labelOf(c), inProgress{err, context.Cause(ctx)})
	}
	return lease, kept, err
}

func (o *Once) unfinished() time.Duration { return max(o.retain, defaultRetain) }

// answer returns the result that a finished record contains.
func (r *record) answer(label string, attempt int) (Outcome, error) {
	switch r.state {
	case unreplayable:
		return Outcome{Attempt: attempt}, fmt.Errorf("once: do %q: %w", label, ErrUnreplayable)
	case indeterminate:
		return Outcome{Attempt: attempt}, fmt.Errorf("once: do %q: %w", label, ErrIndeterminate)
	}
	return Outcome{Value: r.value, Replayed: true, Attempt: attempt}, nil
}

// settled returns the record of a run in state s. s is any state except begun.
func (o *Once) settled(c *Call, s state, attempt int, value []byte) store.Record {
	return store.Record{Value: encode(c, s, attempt, value), Attempt: attempt, Done: s.finished(), Retain: o.retain}
}
