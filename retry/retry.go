package retry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Do runs op until it succeeds, and returns its result. After each failed attempt it
// pauses as p sets and tries again. In these cases the run ends earlier, and Do returns
// the zero T and an error:
//
//   - p is invalid: the error of [Policy.Validate]; op did not run.
//   - op returned an error marked by [Stop], or all attempts of p were made: op's last
//     error.
//   - ctx is done: op's last error, if it ran, joined with ctx.Err() and
//     context.Cause(ctx). errors.Is and errors.As find all of them.
//   - ctx has a deadline that the next pause would reach: op's last error joined with
//     [context.DeadlineExceeded], at once.
//
// Do blocks during the pauses and the calls of op. op gets ctx itself, and has to
// return when ctx is done. Do does not recover a panic of op. It is safe for concurrent
// use, and allocates nothing if the first attempt succeeds.
func Do[T any](ctx context.Context, p Policy, op func(ctx context.Context) (T, error)) (T, error) {
	var zero T
	if err := p.Validate(); err != nil {
		return zero, err
	}
	if ctx.Err() != nil {
		return zero, reason(ctx)
	}
	pauses := sequence{policy: p}
	for {
		v, err := op(ctx)
		if err == nil {
			return v, nil
		}
		if err := pause(ctx, &pauses, p.Jitter, err); err != nil {
			return zero, err
		}
	}
}

// pause waits for the next attempt, or returns the error that ends the run.
func pause(ctx context.Context, pauses *sequence, jitter float64, err error) error {
	stop, least := marks(err)
	err = settle(err)
	if stop {
		return err
	}
	if ctx.Err() != nil {
		return ended(ctx, err)
	}
	d, ok := pauses.next()
	if !ok {
		return err
	}
	if least > 0 {
		d = max(d, spread(least, jitter))
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return fmt.Errorf("%w (not tried again, the next attempt would miss the deadline: %w)", err, context.DeadlineExceeded)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	if ctx.Err() != nil { // even if the timer has fired too
		return ended(ctx, err)
	}
	return nil
}

// spread returns d plus a random part of d, at most the fraction jitter of d.
func spread(d time.Duration, jitter float64) time.Duration {
	if d > longest {
		return d
	}
	return d + time.Duration(rand.Float64()*jitter*float64(d))
}

// reason returns an error that matches ctx.Err and the cause of ctx. ctx must be done.
func reason(ctx context.Context) error {
	err, cause := ctx.Err(), cover(context.Cause(ctx))
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

func ended(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) && errors.Is(err, context.Cause(ctx)) {
		return err // err matches the reason already
	}
	return fmt.Errorf("%w (not tried again: %w)", err, reason(ctx))
}

// Stop marks err as an error after which another attempt is useless. Do then ends the
// run and returns err itself. If op wraps the marked error, the mark still has its
// effect. Do then returns an error that wraps op's error and has its text. Stop(nil)
// returns nil, which means success. Outside a Do the mark has no effect, and errors.Is
// and errors.As find err.
func Stop(err error) error {
	if err == nil {
		return nil
	}
	return &mark{err: err, stop: true}
}

// After marks err with the minimum pause d before the next attempt, if the policy
// allows another attempt. d is lengthened at random by up to the policy's Jitter. The
// pause is the longer of this time and the policy's own pause. The pause can exceed the
// policy's Max. If an error has several marks, a Stop overrides every After. Without a
// Stop, the longest d counts. A d of 0 or less has no effect. In all other respects
// After behaves like [Stop].
func After(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &mark{err: err, after: d}
}

// mark wraps an error with the mark of Stop or After.
type mark struct {
	err   error
	stop  bool
	after time.Duration
}

func (m *mark) Error() string { return m.err.Error() }
func (m *mark) Unwrap() error { return m.err }

// settled wraps an error that a Do has returned. The marks inside were meant for that
// Do, and must not affect an outer Do.
type settled struct{ err error }

func (s *settled) Error() string { return s.err.Error() }
func (s *settled) Unwrap() error { return s.err }

// marks returns the marks in the tree of err, except those that another Do has settled.
func marks(err error) (stop bool, least time.Duration) {
	switch e := err.(type) {
	case *settled:
	case *mark:
		stop, least = marks(e.err)
		stop, least = stop || e.stop, max(least, e.after)
	case interface{ Unwrap() error }:
		return marks(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, branch := range e.Unwrap() {
			s, l := marks(branch)
			stop, least = stop || s, max(least, l)
		}
	}
	return stop, least
}

// settle removes the outer marks of err, and hides inner marks in a settled error.
func settle(err error) error {
	for {
		m, ok := err.(*mark)
		if !ok {
			return cover(err)
		}
		err = m.err
	}
}

func cover(err error) error {
	if stop, least := marks(err); stop || least > 0 {
		return &settled{err}
	}
	return err
}
