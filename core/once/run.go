package once

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lockkit/lockkit/core"
)

type attemptKey struct{}

// attempt is the value in the context of a run.
type attempt struct {
	number  int
	asked   atomic.Bool // AttemptFromContext has returned the number
	answer  atomic.Uint32
	commits commits
}

// The states of the answer of an attempt. The answer can be marked or committed until
// fn has returned.
const (
	isFinal uint32 = iota
	isNotFinal
	isCommitted // a Commit has succeeded, or was tried
	isReturned
)

// AttemptFromContext returns the number of the attempt, 1 for the first. ctx is the
// context that Do passes to fn, or a context derived from it. For other contexts
// AttemptFromContext returns false. If the number is greater than 1, an earlier attempt
// failed, died, or lost its lease and may still be running. The earlier attempt may
// have had its effect.
func AttemptFromContext(ctx context.Context) (int, bool) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return 0, false
	}
	a.asked.Store(true)
	return a.number, true
}

// NotFinal marks the answer of the run of ctx as not final. It is for an API that
// always responds with status 200, and reports a busy channel in the body. The caller
// gets the answer unchanged. The answer is not stored. The same call can be made again,
// even with AtMostOnce, as after an error of fn. If fn returns an error or panics, the
// mark has no effect.
//
// NotFinal reports whether the answer is marked. It returns false if ctx is not the
// context of a run. So a handler may call NotFinal even if no adapter's Idempotent
// wraps the handler. NotFinal also returns false after Commit, and after fn has
// returned; for an adapter, fn is the handler. For nested runs, NotFinal marks the
// innermost run.
//
// Further calls change nothing. NotFinal is safe for concurrent use.
func NotFinal(ctx context.Context) bool {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	return ok && (a.answer.CompareAndSwap(isFinal, isNotFinal) || a.answer.Load() == isNotFinal)
}

// Withdraw marks err as the error of a run whose work has not begun. fn returns the
// marked error if fn had no effect. The run does not count as an attempt, and the
// record of the call is unchanged. Do returns err itself. A key that was new is free
// for another request, for example after a request that was not valid. The mark has no
// effect on an error that matches ErrIndeterminate. If fn has called Commit, a marked
// run still counts as an attempt. Withdraw(nil) returns nil.
func Withdraw(err error) error {
	if err == nil {
		return nil
	}
	return &withdrawn{err}
}

type withdrawn struct{ err error }

func (w *withdrawn) Error() string { return w.err.Error() }

func (w *withdrawn) Unwrap() error { return w.err }

// unmarked returns the error that Withdraw has marked in err. It returns false if there
// is no mark, or if err matches ErrIndeterminate.
func unmarked(err error) (error, bool) {
	if err == nil {
		return nil, false
	}
	var w *withdrawn
	if !errors.As(err, &w) || errors.Is(err, ErrIndeterminate) {
		return nil, false
	}
	return w.err, true
}

// run runs fn under lease and saves the result.
func (o *Once) run(ctx context.Context, lease *core.Lease, c *Call, number int, fn func(context.Context) (Answer, error), t *notice) (Outcome, error) {
	settle := func(s state, value []byte) (err error) {
		err = lease.Finish(ctx, o.settled(c, s, number, value))
		t.saved = err
		return err
	}
	t.ran(number)
	returned := false
	defer func() {
		if !returned { // fn has panicked or called runtime.Goexit
			_ = settle(o.broken(), nil)
		}
	}()
	running := &attempt{number: number, commits: commits{once: o, lease: lease, call: c}}
	a, err := fn(context.WithValue(lease.Context(), attemptKey{}, running))
	returned = true
	marked := running.answer.Swap(isReturned)
	t.worked = err

	if marked == isCommitted {
		s := failed
		if errors.Is(err, ErrIndeterminate) {
			s = o.broken()
		}
		return running.committed(err, settle(s, nil), t)
	}

	if err, ok := unmarked(err); ok {
		_ = lease.Withdraw(ctx) // retried in the background if the store does not answer
		t.withdrawn()
		return Outcome{}, err
	}
	out := Outcome{Attempt: number}
	if err != nil {
		s := failed
		if errors.Is(err, ErrIndeterminate) {
			s = o.broken()
		}
		return out, unsettled(err, settle(s, nil))
	}
	out.Value = a.Value
	if marked == isNotFinal {
		t.worked = errNotFinal
		return out, settle(failed, nil)
	}
	if a.Unreplayable || len(a.Value) > maxValue {
		return out, settle(unreplayable, nil)
	}
	err = lease.FinishLong(ctx, o.settled(c, done, number, a.Value), o.settled(c, unreplayable, number, nil))
	t.saved = err
	return out, err
}

// broken returns the state that is saved for a run with unknown progress.
func (o *Once) broken() state {
	if o.atMostOnce {
		return indeterminate
	}
	return failed
}

// unsettled returns err, the error of fn. If the error saving matches ErrLost or
// ErrUnavailable, the failure could not be saved. The result then also matches that
// sentinel.
func unsettled(err, saving error) error {
	for _, sentinel := range [...]error{core.ErrLost, core.ErrUnavailable} {
		if errors.Is(saving, sentinel) && !errors.Is(err, sentinel) {
			return fmt.Errorf("%w (%w)", err, saving)
		}
	}
	return err
}
