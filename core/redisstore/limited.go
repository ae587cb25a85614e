package redisstore

import (
	"context"
	"time"
)

// limited is a context that tells a client until when a call may take, without
// a timer to end it then: that is what the alarm is for.
type limited struct {
	context.Context
	until time.Time
	over  chan struct{} // closed when it has taken too long; nil if nobody waits for that
}

// enframe makes the context that a client has of a call that travels alone. It is
// no part of the command: the client may look at it for longer than the call takes.
func (c *command) enframe() {
	c.frame = &limited{Context: c.ctx, until: c.until}
	if c.stays {
		c.frame.over = make(chan struct{})
	}
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
		return context.DeadlineExceeded
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

// together is a context for calls that travel together: one of them that is
// cancelled does not end the others.
func together(batch []*command) (context.Context, context.CancelFunc) {
	first, last := batch[0], batch[len(batch)-1]
	return context.WithDeadline(context.WithoutCancel(first.ctx), last.until)
}
