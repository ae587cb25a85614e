package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
)

// scripted is a store between the engine and an inner store. It records every call. A
// test can set a fault for a kind of call. The fault then executes these calls.
type scripted struct {
	inner core.Store

	mu      sync.Mutex
	calls   []call
	faults  map[op]fault
	watch   func(ctx context.Context, n int) (<-chan struct{}, error) // replaces inner.Watch
	running int                                                       // calls in flight
	most    int                                                       // the maximum of running
}

type op string

const (
	opAcquire op = "acquire"
	opExtend  op = "extend"
	opRelease op = "release"
	opWatch   op = "watch"
)

type call struct {
	op     op
	at     time.Time // the time at which the engine sent the call
	claims []store.Claim
}

// fault executes one call of the engine, and returns the error for the engine. It may
// call do, which calls the inner store. n is the number of the call since the fault was
// set, counted from 1.
type fault func(ctx context.Context, n int, do func() error) error

var errBroken = errors.New("connection broken")

func newScripted(inner core.Store) *scripted {
	return &scripted{inner: inner, faults: make(map[op]fault)}
}

// set sets the fault of the given kinds of calls. If f is nil, these calls have no
// fault.
func (s *scripted) set(f fault, ops ...op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range ops {
		if f == nil {
			delete(s.faults, o)
			continue
		}
		n := 0
		s.faults[o] = func(ctx context.Context, _ int, do func() error) error {
			s.mu.Lock()
			n++
			nth := n
			s.mu.Unlock()
			return f(ctx, nth, do)
		}
	}
}

func (s *scripted) setAll(f fault) { s.set(f, opAcquire, opExtend, opRelease) }

func (s *scripted) setWatch(watch func(ctx context.Context, n int) (<-chan struct{}, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = watch
}

func (s *scripted) begin(o op, claims ...store.Claim) fault {
	noMutex()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call{o, time.Now(), slices.Clone(claims)})
	s.running++
	s.most = max(s.most, s.running)
	return s.faults[o]
}

func (s *scripted) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

func (s *scripted) sent(o op) []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var some []call
	for _, c := range s.calls {
		if c.op == o {
			some = append(some, c)
		}
	}
	return some
}

func (s *scripted) count(ops ...op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.calls {
		if len(ops) == 0 || slices.Contains(ops, c.op) {
			n++
		}
	}
	return n
}

func (s *scripted) atMost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

func (s *scripted) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.most = nil, 0
}

func (s *scripted) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	f := s.begin(opAcquire, c)
	defer s.end()
	if f == nil {
		return s.inner.Acquire(ctx, c)
	}
	var g store.Grant
	err := f(ctx, 0, func() (err error) {
		g, err = s.inner.Acquire(context.WithoutCancel(ctx), c)
		return err
	})
	if err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

func (s *scripted) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	f := s.begin(opExtend, claims...)
	defer s.end()
	if f == nil {
		return s.inner.Extend(ctx, claims)
	}
	claims = slices.Clone(claims)
	answers := make([]store.Extension, len(claims))
	err := f(ctx, 0, func() error {
		copy(answers, s.inner.Extend(context.WithoutCancel(ctx), claims))
		return nil
	})
	if err == nil {
		return answers
	}
	failed := make([]store.Extension, len(claims))
	for i := range failed {
		failed[i].Err = err
	}
	return failed
}

func (s *scripted) Release(ctx context.Context, c store.Claim) error {
	f := s.begin(opRelease, c)
	defer s.end()
	if f == nil {
		return s.inner.Release(ctx, c)
	}
	return f(ctx, 0, func() error { return s.inner.Release(context.WithoutCancel(ctx), c) })
}

func (s *scripted) Watch(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
	s.begin(opWatch, c)
	defer s.end()
	s.mu.Lock()
	watch := s.watch
	s.mu.Unlock()
	if watch != nil {
		return watch(ctx, s.count(opWatch))
	}
	w, ok := s.inner.(store.Watcher)
	if !ok {
		return nil, core.ErrUnsupported
	}
	return w.Watch(ctx, c)
}

// blind is a store that cannot wake waiters.
type blind struct{ core.Store }

// loseRequest is the fault of a request that does not reach the store and fails.
func loseRequest(context.Context, int, func() error) error { return errBroken }

// loseReply is the fault of a call that the store executes, and whose reply is lost.
func loseReply(_ context.Context, _ int, do func() error) error {
	do()
	return errBroken
}

// refuse is the fault of a call that was certainly not executed.
func refuse(context.Context, int, func() error) error {
	return fmt.Errorf("%w: connection refused", core.ErrUnavailable)
}

// hang is the fault of a request that does not reach the store, and whose reply never
// comes. It blocks until the context is done, and returns an error with the context's
// cause.
func hang(ctx context.Context, _ int, _ func() error) error {
	<-ctx.Done()
	return fmt.Errorf("gave up waiting for the server: %w", context.Cause(ctx))
}

// hangAfter is the fault of a call that the store executes, and whose reply never
// comes.
func hangAfter(ctx context.Context, n int, do func() error) error {
	do()
	return hang(ctx, n, nil)
}

// late returns a fault in which the reply never comes. The store executes the call when
// d has passed since the engine stopped waiting.
func late(d time.Duration) fault {
	return func(ctx context.Context, n int, do func() error) error {
		context.AfterFunc(ctx, func() {
			time.Sleep(d)
			do()
		})
		return hang(ctx, n, nil)
	}
}

// slow returns a fault in which the request and the reply take the given times. If the
// engine stops waiting during the request, the store does not execute the call.
func slow(request, reply time.Duration) fault {
	return func(ctx context.Context, n int, do func() error) error {
		if !pause(ctx, request) {
			return hang(ctx, n, nil)
		}
		err := do()
		if !pause(ctx, reply) {
			return hang(ctx, n, nil)
		}
		return err
	}
}

// pause waits for d, and returns false if ctx is done first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// first returns a fault that applies f to the given number of calls. Later calls have
// no fault.
func first(calls int, f fault) fault {
	return func(ctx context.Context, n int, do func() error) error {
		if n <= calls {
			return f(ctx, n, do)
		}
		return do()
	}
}
