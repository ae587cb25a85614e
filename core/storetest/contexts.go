package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

var errEnded = errors.New("the case ended this context")

var contextCases = []testCase{
	{"done context claims nothing", nil, func(e *env) {
		c := e.exclusive()
		e.soon(func(ctx context.Context) error {
			_, err := e.store.Acquire(ctx, c)
			return err
		})
		e.giveUp(e.store, c)
		e.isFree()
	}},
	{"done context harms no hold", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.soon(func(ctx context.Context) error {
			_, err := e.other.Acquire(ctx, e.exclusive())
			return err
		})
		e.soon(func(ctx context.Context) error {
			answers := e.store.Extend(ctx, []store.Claim{c, c})
			if len(answers) != 2 {
				e.Fatalf("extend: got %d answers for 2 claims", len(answers))
			}
			return answers[1].Err
		})
		e.isHeld()
		e.extend(e.store, c)
	}},
	{"release after a done context", nil, func(e *env) {
		c := e.exclusive()
		e.acquire(e.store, c)
		e.soon(func(ctx context.Context) error { return e.store.Release(ctx, c) })
		e.giveUp(e.store, c)
		e.isFree()
	}},
	{"done context opens no watch", []Feature{Watching}, func(e *env) {
		e.soon(func(ctx context.Context) error {
			woken, err := watcher(e, e.store).Watch(ctx, e.waiting())
			if err == nil && woken == nil {
				e.Error("watch: got neither a channel nor an error")
			}
			return err
		})
	}},
	// After its release, a claim whose Acquire was canceled in flight leaves no hold.
	{"context done during the call", nil, func(e *env) {
		for i := range 40 {
			c := e.exclusive()
			c.TTL = e.units(20)
			ctx, cancel := context.WithTimeout(e.Context(), time.Duration(i)*25*time.Microsecond)
			_, err := e.store.Acquire(ctx, c)
			if err == nil {
				e.store.Extend(ctx, []store.Claim{c})
			}
			cancel()
			e.giveUp(e.store, c)
		}
		if took := e.becomesFree(e.other, e.exclusive()); e.can(Tombstones) && took > e.units(15) {
			e.Errorf("the key was free only after %v: a claim was left to expire", took)
		}
	}},
}

// soon calls call with a done context. It fails the case unless call returns soon, with
// nil, store.ErrBusy or an error that matches the context's cause.
func (e *env) soon(call func(ctx context.Context) error) {
	e.Helper()
	ctx, cancel := context.WithCancelCause(e.Context())
	cancel(errEnded)
	start := time.Now()
	err := call(ctx)
	if took := time.Since(start); took > patience/4 {
		e.Errorf("returned %v after its context was done", took)
	}
	if err != nil && !errors.Is(err, errEnded) && !errors.Is(err, store.ErrBusy) {
		e.Errorf("got error %v, which does not match the context's cause", err)
	}
}
