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
	number int
	asked  atomic.Bool // for its number
}

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

// Withdraw marks err, which fn returns, as that of a run whose work has not begun:
// fn had no effect at all. The run does not count as an attempt, what is kept of
// the call is as it was before, and Do returns err itself. Withdraw(nil) is nil.
func Withdraw(err error) error {
	if err == nil {
		return nil
	}
	return &withdrawn{err}
}

type withdrawn struct{ err error }

func (w *withdrawn) Error() string { return w.err.Error() }

func (w *withdrawn) Unwrap() error { return w.err }

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
	a, err := fn(context.WithValue(lease.Context(), attemptKey{}, &attempt{number: number}))
	returned = true
	t.worked = err

	if w := (*withdrawn)(nil); errors.As(err, &w) {
		_ = lease.Withdraw(ctx) // goes on in the background where the store does not answer
		t.withdrawn()
		return Outcome{}, w.err
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
	if a.Unreplayable || len(a.Value) > maxValue {
		return out, settle(unreplayable, nil)
	}
	return out, settle(done, a.Value)
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
