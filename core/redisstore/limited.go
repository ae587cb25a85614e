package redisstore

import (
	"context"
	"time"
)

// limited is a context that tells a client until when calls may take, without a
// timer to end it then: that is what the alarm is for.
type limited struct {
	context.Context
	until time.Time
	over  chan struct{} // closed when it ends; nil if only Context ends it
	err   error         // why it has ended, set before
}

func (l *limited) Done() <-chan struct{} {
	if l.over != nil {
		return l.over
	}
	return l.Context.Done()
}

func (l *limited) Err() error {
	select {
	case <-l.over:
		return l.err
	default:
		return l.Context.Err()
	}
}

func (l *limited) Deadline() (time.Time, bool) {
	if end, ok := l.Context.Deadline(); ok && end.Before(l.until) {
		return end, true
	}
	return l.until, true
}

// end ends l, unless it has ended. Only one goroutine may at a time.
func (l *limited) end(err error) {
	if l.over != nil && l.err == nil {
		l.err = err
		close(l.over)
	}
}

// frame is the context that a client has, from now on, of calls that travel
// together, or of one alone. It is no part of a command: the client may look at it
// for longer than the calls take.
func (s *sender) frame(batch []*command, now time.Time) *limited {
	first, last := batch[0], batch[len(batch)-1]
	l := &limited{Context: first.ctx, until: now.Add(last.until - now.Sub(s.born))}
	if len(batch) > 1 {
		l.Context = context.WithoutCancel(first.ctx) // one that is cancelled does not end the others
	}
	if l.Context.Done() == nil { // else its caller's time ends it
		l.over = make(chan struct{})
	}
	return l
}
