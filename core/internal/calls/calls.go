// Package calls runs a call so that its caller can leave it. Some clients do not return
// when a context is done, and others close their connection.
//
// The package is for calls whose late outcome is not needed: the calls of redisstore,
// its pipeline and casstore. The SQL stores use it through casstore, and take
// connections with Either. These stores limit a call themselves, because the pipeline's
// timer and PostgreSQL's wait for a row use the same limit. The stores also know
// whether anything was sent. zkstore and redlock have their own implementations. In
// zkstore a late answer is a node that must be deleted, and in redlock it is a vote.
// memstore makes no such calls.
package calls

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// errExited is the outcome of work that has neither returned nor panicked.
var errExited = errors.New("the client exited its goroutine")

// Detached runs work in a new goroutine, even if ctx is done, and returns its outcome.
// If ctx is done first, left is true and err is the cause of ctx. A later outcome is
// then dropped. A panic in work is returned as an error.
func Detached[T any](ctx context.Context, work func() (T, error)) (value T, left bool, err error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		o := outcome{err: errExited}
		defer func() {
			if r := recover(); r != nil {
				o.err = fmt.Errorf("panic in the client: %v", r)
			}
			done <- o
		}()
		o.value, o.err = work()
	}()
	select {
	case o := <-done:
		return o.value, false, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-done: // the outcome arrived at the same moment
		return o.value, false, o.err
	default:
		return value, true, context.Cause(ctx)
	}
}

// Either runs first and returns its outcome. If first takes longer than pause, Either
// also runs second in a new goroutine. If second returns a value, Either cancels the
// context of first and waits until first has returned. It returns a value of first if
// there is one, and otherwise second's value. A value of second that Either does not
// return is passed to release.
//
// stop cancels the context of first, and waits until first has returned. A panic in
// second is an error. If both fail, the error is first's, or second's after stop.
func Either[T any](ctx context.Context, pause time.Duration, first func(ctx context.Context) (T, error),
	second func(ctx context.Context, stop func()) (T, error), release func(T)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	returned, other := make(chan struct{}), make(chan outcome)
	timer := time.AfterFunc(pause, func() {
		o := outcome{err: errExited}
		defer func() {
			if r := recover(); r != nil {
				o.err = fmt.Errorf("panic in the client: %v", r)
			}
			if o.err == nil {
				cancel()
			}
			select {
			case other <- o:
			case <-ctx.Done():
				if o.err == nil {
					release(o.value)
				}
			}
		}()
		o.value, o.err = second(ctx, func() { cancel(); <-returned })
	})
	defer timer.Stop()
	value, err := func() (T, error) {
		defer close(returned)
		return first(trying)
	}()
	stopped := trying.Err() != nil && ctx.Err() == nil
	if err == nil || timer.Stop() {
		return value, err
	}
	select {
	case o := <-other:
		if o.err == nil || stopped {
			return o.value, o.err
		}
	case <-ctx.Done():
		if stopped {
			err = ctx.Err()
		}
	}
	return value, err
}
