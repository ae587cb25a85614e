package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// maxValue bounds what is kept as an answer: less than what any store refuses,
// since an answer that cannot be saved is a run that seems to have died.
const maxValue = 32 << 20

// Once runs calls once and keeps their answers. It is safe for concurrent use,
// and holds nothing that would have to be closed.
type Once struct {
	config
	locker *core.Locker
	label  string // in messages and events; empty: the call's name
}

// Answer is what a run leaves behind.
type Answer struct {
	// Value is the answer, for this caller and all later ones. Above 32 MiB it is
	// as if Unreplayable were set.
	Value []byte
	// Unreplayable says that the work is done, but that Value is for this caller
	// only, or not the whole of the answer: later ones get ErrUnreplayable.
	Unreplayable bool
}

// Outcome is what Do has to say of a call.
type Outcome struct {
	Value    []byte // the answer
	Replayed bool   // it is that of an earlier run: fn was not called
	Attempt  int    // the run that this is about, counted from 1; 0 if unknown
}

// New makes a Once whose answers are kept in the store of l. It sends nothing.
//
// It fails with core.ErrInvalid if l or an option is nil or an option is not
// allowed, and with core.ErrUnsupported if the store keeps no records.
func New(l *core.Locker, opts ...Option) (*Once, error) {
	if l == nil {
		return nil, fmt.Errorf("new once: locker is nil: %w", core.ErrInvalid)
	}
	o := &Once{config: config{retain: defaultRetain, acquire: []core.AcquireOption{core.Wait(0)}}, locker: l}
	return o.WithOptions(opts...)
}

// Do answers c: with what is kept of it, after one call to the store, or by
// running fn and keeping what that answers. It does not wait for a run that goes
// on elsewhere, unless Acquire(core.Wait(d)) says so.
//
// fn runs under the context of a lease that is extended while it goes on, and
// that ends with cause core.ErrLost when this process can no longer trust it;
// AttemptFromContext tells there which attempt it is. The lease is not found by
// core.LeaseFromContext.
//
// If fn returns an error, so does Do, and the call can be made again; likewise
// if fn panics, which Do lets pass. AtMostOnce says what differs there. An error
// marked by Withdraw takes the run back: it was no attempt.
//
// If fn succeeded, its answer is saved also after the lease was lost and after the
// Locker was closed, as long as no other run of the call has begun. If it could not
// be saved, Do returns both the Outcome and an error: core.ErrLost if another run
// has begun or has saved its answer, and core.ErrUnavailable if the store did not
// confirm; unless the Locker was closed, that is tried further in the background,
// and the answer may be kept after all. An answer of more than 512 KiB is sent once if the
// store does not answer, since its server may refuse that length without a word: the run
// is done then, and later callers get ErrUnreplayable. An error of fn that could not be noted
// matches these too.
//
// If fn has called Commit, Do returns the answer that was committed, and else an error, whatever
// fn returns. The error matches core.ErrUnavailable, and says that it is not known, if the
// store did not answer.
//
// If ctx ends before fn has begun, fn is not run, which is no attempt, and the error
// matches why ctx ended. Without having run fn it fails with ErrInProgress, ErrMismatch,
// ErrIndeterminate or ErrUnreplayable; with core.ErrInvalid if c is not allowed,
// before anything is sent; with core.ErrUnavailable, core.ErrClosed; and with
// core.ErrUnsupported if the store keeps no records, or keeps one that this
// program cannot read: it is neither replayed nor run again.
func (o *Once) Do(ctx context.Context, c Call, fn func(ctx context.Context) (Answer, error)) (Outcome, error) {
	if fn == nil {
		return Outcome{}, fmt.Errorf("once: fn is nil: %w", core.ErrInvalid)
	}
	if err := c.check(); err != nil {
		return Outcome{}, err
	}
	t := telling{ctx: ctx, locker: o.locker}
	defer t.tell()
	out, err := o.do(ctx, &c, fn, &t)
	t.ended(out, err)
	return out, err
}

// do is Do for a call that is allowed. It notes in t whether fn ran.
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
		// Whether it can be noted or not: the next caller finds the same.
		r.state = indeterminate
		_ = lease.Finish(ctx, o.settled(c, r.state, kept.Attempt-1, nil))
		return r.answer(o.labelOf(c), kept.Attempt-1)
	case err == nil && ctx.Err() == nil:
		return o.run(ctx, lease, c, kept.Attempt, fn, t)
	case err == nil:
		err = fmt.Errorf("%w: it was over before it began: %w", core.ErrBusy, context.Cause(ctx))
		fallthrough
	case lease != nil:
		// Nothing was begun, so the claim does not count as an attempt.
		_ = lease.Withdraw(ctx)
	}
	return Outcome{}, fmt.Errorf("once %s: %w", o.labelOf(c), err)
}

// begin claims the run of c. e is what is to be told of that.
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

// unfinished is how long a run is remembered that has not said how it ended.
func (o *Once) unfinished() time.Duration { return max(o.retain, defaultRetain) }

// answer is what a finished record says.
func (r *record) answer(label string, attempt int) (Outcome, error) {
	switch r.state {
	case unreplayable:
		return Outcome{Attempt: attempt}, fmt.Errorf("once %s: %w", label, ErrUnreplayable)
	case indeterminate:
		return Outcome{Attempt: attempt}, fmt.Errorf("once %s: %w", label, ErrIndeterminate)
	}
	return Outcome{Value: r.value, Replayed: true, Attempt: attempt}, nil
}

// settled is the record of a run of which it is known how it ended.
func (o *Once) settled(c *Call, s state, attempt int, value []byte) store.Record {
	return store.Record{Value: encode(c, s, attempt, value), Attempt: attempt, Done: s.finished(), Retain: o.retain}
}
