// Package calls runs a call so that its caller can leave it: a client may not return
// when a context is done, or may give up its connection then.
//
// It is for calls whose late outcome nobody needs: redisstore, its pipeline, pgstore
// and casstore. These stores bound a call themselves, because PostgreSQL's wait for a
// row and the pipeline's timer follow the bound, and they know whether anything was
// sent. A late answer in zkstore is a node to be removed, and in redlock a vote, so
// these have their own ways. memstore has no calls.
package calls

import (
	"context"
	"fmt"
)

// Detached runs work on a goroutine of its own, even if ctx is done, and returns its
// outcome. If ctx is done first, the caller has left, and err is the cause; a later
// outcome is dropped. A panic in work is an error.
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
	case o := <-done: // it came at the same moment
		return o.value, false, o.err
	default:
		return value, true, context.Cause(ctx)
	}
}
