package guard

import (
	"context"
	"errors"
)

// Note is what inner middlewares of this package leave for an outer Idempotent.
type Note struct {
	GaveUp  bool // a context is done, which explains a missing response
	Refused int  // the status of the last refusal to the Idempotent's Recorder, or 0
	Ran     bool // the handler ran before that refusal
}

// refused calls respond, which refuses the request. It notes the status for an outer
// Idempotent, unless a handler has begun another response before. ran reports whether
// the handler has run.
func refused(x Exchange, ran bool, respond func()) {
	begun := x.Writer().Written()
	respond()
	if !begun {
		x.Refuse(x.Writer().Status(), ran)
	}
}

// over reports whether ctx, the context of the handlers, is done. If a time-out
// middleware has left another context in the request, over also returns true after that
// context's deadline.
func over(ctx context.Context, x Exchange) bool {
	return ctx.Err() != nil || errors.Is(x.Request().Context().Err(), context.DeadlineExceeded)
}
