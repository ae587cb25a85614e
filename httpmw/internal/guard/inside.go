package guard

import (
	"context"
	"errors"
)

// The notes that a middleware leaves for an outer Idempotent.
const (
	gaveUp  = 1 + iota // a context is done, which explains a missing response
	refused            // an inner middleware refused the request, and ran nothing
)

// inside leaves the note what for an outer Idempotent. refused overrides gaveUp. A
// refusal stays the response even if a context is done later.
func inside(x Exchange, what int) {
	if x.Inside() < what {
		x.SetInside(what)
	}
}

// over reports whether ctx, the context of the handlers, is done. If a time-out
// middleware has left another context in the request, over also returns true after that
// context's deadline.
func over(ctx context.Context, x Exchange) bool {
	return ctx.Err() != nil || errors.Is(x.Request().Context().Err(), context.DeadlineExceeded)
}
