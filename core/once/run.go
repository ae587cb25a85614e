package once

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lockkit/lockkit/core"
)

type attemptKey struct{}

// attempt is a run as seen by the code under its context.
type attempt struct {
	number  int
	asked   atomic.Bool // its number was read
	answer  atomic.Uint32
	commits commits
}

// The answer of an attempt. It can be marked or committed until fn has returned.
const (
	isFinal uint32 = iota
	isNotFinal
	isCommitted // or a Commit was tried
	isReturned
)

// AttemptFromContext returns the number of the attempt to fn, under the context of Do:
// 1 for the first. From 2 on an earlier attempt failed or died, or lost its lease and
// may even still be running. It may have had its effect.
func AttemptFromContext(ctx context.Context) (int, bool) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return 0, false
	}
	a.asked.Store(true)
	return a.number, true
}

// NotFinal marks the answer of the run of ctx as not final. It is for an API that
// always answers 200, and says in the body that its channel is busy. The caller gets
// the answer unchanged. The answer is not stored, and the same call can be made again,
// as after an error of fn, under AtMostOnce too. If fn returns an error or panics, that
// counts instead.
//
// NotFinal reports whether it had an effect. It returns false if ctx is not that of a
// run, so a handler may call it whether or not it is mounted behind an adapter's
// Idempotent. It also returns false after Commit, and once fn has returned; behind an
// adapter, fn is the handler. Of runs inside of one another it marks the innermost run.
//
// Further calls change nothing. NotFinal is safe for concurrent use.
func NotFinal(ctx context.Context) bool {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	return ok && (a.answer.CompareAndSwap(isFinal, isNotFinal) || a.answer.Load() == isNotFinal)
}

// Withdraw marks err, which fn returns, as the error of a run whose work has not begun:
// fn had no effect at all. The run does not count as an attempt, the record of the call
// is as it was before, and Do returns err itself. A key that was new is free for
// another request, as after a request that was not valid. Withdraw does not mark an
// error that matches ErrIndeterminate. Withdraw(nil) returns nil.
func Withdraw(err error) error {
	if err == nil {
		return nil
	}
	return &withdrawn{err}
}

type withdrawn struct{ err error }

func (w *withdrawn) Error() string { return w.err.Error() }

func (w *withdrawn) Unwrap() error { return w.err }

// unmarked returns the error that Withdraw has marked in err, and whether it has.
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

// run runs fn under lease and settles its end.
func (o *Once) run(ctx context.Context, lease *core.Lease, c *Call, number int, fn func(context.Context) (Answer, error), t *telling) (Outcome, error) {
	settle := func(s state, value []byte) (err error) {
		err = lease.Finish(ctx, o.settled(c, s, number, value))
		t.saved = err
		return err
	}
	t.ran(number)
	returned := false
	defer func() {
		if !returned { // fn panics, or ends its goroutine, and that goes on
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
		_ = lease.Withdraw(ctx) // continues in the background where the store does not answer
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

// broken returns the state of a run with unknown progress.
func (o *Once) broken() state {
	if o.atMostOnce {
		return indeterminate
	}
	return failed
}

// unsettled returns fn's error err, with saving added if the failure could not be
// saved.
func unsettled(err, saving error) error {
	for _, sentinel := range [...]error{core.ErrLost, core.ErrUnavailable} {
		if errors.Is(saving, sentinel) && !errors.Is(err, sentinel) {
			return fmt.Errorf("%w (%w)", err, saving)
		}
	}
	return err
}
