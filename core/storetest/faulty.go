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

// Loss says how far a call gets.
type Loss int

// The losses.
const (
	LoseNothing Loss = iota
	LoseRequest      // the store never sees the call
	LoseReply        // the store executes the call, the caller does not learn of it
)

// Fault is what happens to one call on its way to the store and back. The zero
// Fault is none.
type Fault struct {
	// Delay is how long the request is under way. If the caller's ctx ends
	// meanwhile the caller is gone, but the request still arrives.
	Delay time.Duration
	// Twice says that the request arrives a second time after the first one was
	// served; the caller gets the first reply.
	Twice bool
	// Lose says whether the request or its reply is lost.
	Lose Loss
	// ReplyDelay is how long the reply, or the news of its loss, is under way.
	ReplyDelay time.Duration
	// Err is how the caller learns of a loss. If it is nil the caller learns
	// nothing: the call hangs until its ctx ends. Err alone, without a loss, is
	// a request that was refused on its way.
	Err error
}

// Faults decides what happens to the calls to the store that Faulty made with it.
// Its zero value lets everything pass. It is safe for concurrent use.
type Faults struct {
	mu       sync.Mutex
	next     map[Op][]Fault
	hook     func(op Op, claims []store.Claim) Fault
	calls    map[Op]int
	muted    bool
	watches  map[chan struct{}]context.CancelFunc
	underWay sync.WaitGroup
}

// Next makes the next calls of op suffer faults, one each.
func (f *Faults) Next(op Op, faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = make(map[Op][]Fault)
	}
	f.next[op] = append(f.next[op], faults...)
}

// Hook makes fn decide about every call that Next has no fault for; nil ends
// that. fn is told the claims of the call, may be called from several
// goroutines at once, and may block, which delays the call.
func (f *Faults) Hook(fn func(op Op, claims []store.Claim) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = fn
}

// Calls returns how many calls of op there were so far, lost ones included.
func (f *Faults) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Mute makes wake-ups get lost, or ends that.
func (f *Faults) Mute(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.muted = on
}

// BreakWatches breaks all watches that are open: their channels are closed.
func (f *Faults) BreakWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, end := range f.watches {
		end()
	}
}

// Wait waits until every call that was made has reached the store or is lost,
// whether its caller is still there or not.
func (f *Faults) Wait() { f.underWay.Wait() }

// take counts a call and returns its fault.
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

// Faulty returns s behind faults. It is a store.Watcher if s is one, and tells which
// claims it serves if s does. Without faults it does what s does. It has
// the methods of store.Inspector and store.Cards too, to which no fault happens; they
// fail with store.ErrUnsupported where s has none.
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

// CheckClaim implements store.Checker. A store that does not tell refuses nothing.
func (f faulty) CheckClaim(c store.Claim) error {
	if k, ok := f.store.(store.Checker); ok {
		return k.CheckClaim(c)
	}
	return nil
}

// granted is what Acquire returns.
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

// pass makes call under fault. If the caller gets no answer of the store, fail makes its
// result from an error.
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
			// The caller may be gone, the request is not.
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
