package storetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockkit/lockkit/core/store"
)

// Op is a method of a store.
type Op string

// The methods that can be made to fail.
const (
	OpAcquire Op = "acquire"
	OpExtend  Op = "extend"
	OpRelease Op = "release"
	OpWatch   Op = "watch"
)

// Loss is the part of a call that is lost.
type Loss int

// The losses.
const (
	LoseNothing Loss = iota
	LoseRequest      // the store never receives the call
	LoseReply        // the store executes the call, and the caller gets no reply of the store
)

// Fault describes the faults of one call, on its way to the store and back. The zero
// Fault has no effect.
type Fault struct {
	// Delay is the time until the request arrives at the store. If the caller's ctx is
	// done earlier, the call returns, and the request still arrives.
	Delay time.Duration
	// Twice makes the request arrive a second time after the store has executed it. The
	// caller gets the first reply.
	Twice bool
	// Lose makes the request or its reply get lost.
	Lose Loss
	// ReplyDelay is the time until the reply, or the Err of a loss, arrives at the
	// caller.
	ReplyDelay time.Duration
	// Err is the error that the caller gets for a loss. If Err is nil, a lost call
	// hangs until its ctx is done. If only Err is set, the request is lost, and the
	// caller gets Err.
	Err error
}

// Faults sets the faults of a store that Faulty has returned for these Faults. The zero
// Faults sets none. Faults is safe for concurrent use.
type Faults struct {
	mu       sync.Mutex
	next     map[Op][]Fault
	hook     func(op Op, claims []store.Claim) Fault
	calls    map[Op]int
	muted    bool
	watches  map[chan struct{}]context.CancelFunc
	underWay sync.WaitGroup
}

// Next sets faults for the next calls of op, one for each call.
func (f *Faults) Next(op Op, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = make(map[Op][]Fault)
	}
	f.next[op] = append(f.next[op], faults...)
}

// Hook sets a function that returns the fault of each call for which Next has set none.
// If fn is nil, such calls have no fault. fn gets the claims of the call. It may be
// called from several goroutines at once. It may block, which delays the call.
func (f *Faults) Hook(fn func(op Op, claims []store.Claim) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = fn
}

// Calls returns the number of calls of op so far, including lost calls.
func (f *Faults) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Mute sets whether all wake-ups from now on are lost.
func (f *Faults) Mute(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.muted = on
}

// BreakWatches breaks all open watches, so that their channels are closed.
func (f *Faults) BreakWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, end := range f.watches {
		end()
	}
}

// Wait waits until no call with a fault is in flight. A call counts until its delays
// have passed and it is executed or lost. Its caller may have returned earlier.
func (f *Faults) Wait() { f.underWay.Wait() }

func (f *Faults) take(op Op, claims []store.Claim) Fault {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = make(map[Op]int)
	}
	f.calls[op]++
	if queue := f.next[op]; len(queue) > 0 {
		f.next[op] = queue[1:]
		f.mu.Unlock()
		return queue[0]
	}
	hook := f.hook
	f.mu.Unlock()
	if hook == nil {
		return Fault{}
	}
	return hook(op, claims)
}

// Faulty returns a store that calls s and applies faults. Without faults the methods of
// the store behave like the methods of s. The store is a store.Watcher if s is a
// store.Watcher. CheckClaim calls CheckClaim of s, or accepts every claim if s has no
// such method. The store also has the methods of store.Inspector and store.Cards,
// without faults. If s does not have these methods, they fail with store.ErrUnsupported.
// The store does not implement store.Prompt, store.Braced and store.Node.
func Faulty(s store.Store, faults *Faults) store.Store {
	f := faulty{s, faults}
	if w, watches := s.(store.Watcher); watches {
		return struct {
			faulty
			faultyWatch
		}{f, faultyWatch{w, faults}}
	}
	return f
}

type faulty struct {
	store  store.Store
	faults *Faults
}

// CheckClaim implements store.Checker.
func (f faulty) CheckClaim(c store.Claim) error {
	if k, ok := f.store.(store.Checker); ok {
		return k.CheckClaim(c)
	}
	return nil
}

type granted struct {
	grant store.Grant
	err   error
}

func (f faulty) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	r := pass(ctx, f.faults, f.faults.take(OpAcquire, []store.Claim{c}), func(ctx context.Context) granted {
		g, err := f.store.Acquire(ctx, c)
		return granted{g, err}
	}, func(err error) granted { return granted{err: err} })
	return r.grant, r.err
}

func (f faulty) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	return pass(ctx, f.faults, f.faults.take(OpExtend, claims), func(ctx context.Context) []store.Extension {
		return f.store.Extend(ctx, claims)
	}, func(err error) []store.Extension {
		answers := make([]store.Extension, len(claims))
		for i := range answers {
			answers[i].Err = err
		}
		return answers
	})
}

func (f faulty) Release(ctx context.Context, c store.Claim) error {
	return pass(ctx, f.faults, f.faults.take(OpRelease, []store.Claim{c}), func(ctx context.Context) error {
		return f.store.Release(ctx, c)
	}, func(err error) error { return err })
}

// pass executes call with fault. If the caller gets no answer of the store, fail makes
// the result from an error.
func pass[R any](ctx context.Context, f *Faults, fault Fault,
	call func(context.Context) R, fail func(error) R,
) R {
	if fault.Err != nil && fault.Lose == LoseNothing {
		fault.Lose = LoseRequest
	}
	if fault.Delay == 0 && fault.ReplyDelay == 0 && fault.Lose == LoseNothing && !fault.Twice {
		return call(ctx)
	}
	answer := make(chan R, 1)
	f.underWay.Go(func() {
		var r R
		time.Sleep(fault.Delay)
		if fault.Lose != LoseRequest {
			// The request arrives even if the caller has returned.
			r = call(context.WithoutCancel(ctx))
			if fault.Twice {
				call(context.WithoutCancel(ctx))
			}
		}
		time.Sleep(fault.ReplyDelay)
		switch {
		case fault.Lose == LoseNothing:
			answer <- r
		case fault.Err != nil:
			answer <- fail(fault.Err)
		}
	})
	select {
	case r := <-answer:
		return r
	case <-ctx.Done():
		return fail(fmt.Errorf("no answer: %w", context.Cause(ctx)))
	}
}
