// Package calls runs a call so that its caller can leave it. A client may not return
// when a context is done, or may close its connection then.
//
// The package is for calls whose late outcome nobody needs: those of redisstore, its
// pipeline and casstore. The SQL stores use it through casstore. These stores limit a
// call themselves, because the pipeline's timer and PostgreSQL's wait for a row use
// that limit. They also know whether anything was sent. In zkstore a late answer is a
// node that has to be deleted, and in redlock it is a vote, so these packages have
// their own implementations. memstore makes no such calls.
package calls

import (
	"context"
	"fmt"
)

// Detached runs work in a new goroutine, even if ctx is done, and returns its outcome.
// If ctx is done first, the caller leaves: left is true, err is the cause of ctx, and a
// later outcome is dropped. A panic in work is returned as an error.
func Detached[T any](ctx context.Context, work func() (T, error)) (value T, left bool, err error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
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
