package pipeline

import (
	"context"
	"time"
)

// batchContext is the context that a client has of calls that go together, or of one
// alone. It tells until when they may take, without a timer to end it then: the
// sender has one for all. It is no part of a call: the client may look at it for
// longer than the calls take.
type batchContext struct {
	context.Context
	until time.Time
	over  chan struct{} // closed when it ends; nil if only Context ends it
	err   error         // why it has ended, set before
}

// newBatchContext returns the context of calls from now on, which their sender calls
// since.
func newBatchContext(batch []*Call, now time.Time, since time.Duration) *batchContext {
	first, last := batch[0], batch[len(batch)-1]
	b := &batchContext{Context: first.ctx, until: now.Add(last.until - since)}
	if len(batch) > 1 {
		b.Context = context.WithoutCancel(first.ctx) // one that is cancelled does not end the others
	}
	if b.Context.Done() == nil { // else its caller's time ends it
		b.over = make(chan struct{})
	}
	return b
}

// Done implements context.Context.
func (b *batchContext) Done() <-chan struct{} {
	if b.over != nil {
		return b.over
	}
	return b.Context.Done()
}

// Err implements context.Context.
func (b *batchContext) Err() error {
	select {
	case <-b.over:
		return b.err
	default:
		return b.Context.Err()
	}
}

// Deadline implements context.Context.
func (b *batchContext) Deadline() (time.Time, bool) {
	if end, ok := b.Context.Deadline(); ok && end.Before(b.until) {
		return end, true
	}
	return b.until, true
}

// end ends b, unless it has ended. Only one goroutine may at a time.
func (b *batchContext) end(err error) {
	if b.over != nil && b.err == nil {
		b.err = err
		close(b.over)
	}
}
