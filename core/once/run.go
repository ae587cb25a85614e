package once

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lockkit/lockkit/core"
)

type attemptKey struct{}

// attempt is a run as the code under its context can see it.
type attempt struct {
	number  int
	asked   atomic.Bool // for its number
	answer  atomic.Uint32
	commits commits
}

// The answer of an attempt. It can be marked or committed until fn has returned.
const (
	isFinal uint32 = iota
	isNotFinal
	isCommitted // or was tried to be
	isReturned
)

// AttemptFromContext tells fn, under the context that Do runs it with, which
// attempt it is: 1 for the first. From 2 on an earlier one failed or died, or
// lost its lease and may even still be running: it may have had its effect.
func AttemptFromContext(ctx context.Context) (int, bool) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return 0, false
	}
	a.asked.Store(true)
	return a.number, true
}

// NotFinal marks the answer of the run of ctx as not final: an API that always answers
// 200, and says in the body that its channel is busy. The caller gets the answer as it
// is. The answer is not stored, and the same call can be made again, as after an error
// of fn, under AtMostOnce too. If fn returns an error or panics, that counts instead.
//
// NotFinal returns whether it had an effect. It returns false if ctx is not that of a
// run, so a handler may call it whether or not it is mounted behind an adapter's
// Idempotent. It also returns false once fn has returned, which is the handler, behind
// an adapter, and after Commit. Of runs inside of one another it marks the innermost one.
//
// Further calls change nothing. NotFinal is safe for concurrent use.
func NotFinal(ctx context.Context) bool {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	return ok && (a.answer.CompareAndSwap(isFinal, isNotFinal) || a.answer.Load() == isNotFinal)
}

// Withdraw marks err, which fn returns, as that of a run whose work has not begun:
// fn had no effect at all. The run does not count as an attempt, what is kept of
// the call is as it was before, and Do returns err itself. A key that was new is free for
// another request, as after a request that was not valid. An error that matches
// ErrIndeterminate is not marked by it. Withdraw(nil) is nil.
func Withdraw(err error) error {
	if err == nil {
		return nil
	}
	return &withdrawn{err}
}

type withdrawn struct{ err error }

func (w *withdrawn) Error() string { return w.err.Error() }

func (w *withdrawn) Unwrap() error { return w.err }

// unmarked returns what Withdraw has marked in err, and whether it has.
func unmarked(err error) (error, bool) {
	var w *withdrawn
	marked := errors.As(err, &w)
	if !marked || errors.Is(err, ErrIndeterminate) {
		return nil, false
	}
	return w.err, true
}

// run runs fn under lease and settles how it ended.
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
		_ = lease.Withdraw(ctx) // goes on in the background where the store does not answer
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

// broken is the state of a run that does not know how far it came.
func (o *Once) broken() state {
	if o.atMostOnce {
		return indeterminate
	}
	return failed
}

// unsettled is fn's error err, as it is if the failure could be noted.
func unsettled(err, saving error) error {
	for _, sentinel := range [...]error{core.ErrLost, core.ErrUnavailable} {
		if errors.Is(saving, sentinel) && !errors.Is(err, sentinel) {
			return fmt.Errorf("%w (%w)", err, saving)
		}
	}
	return err
}
