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

// inside leaves the note what. refused overrides gaveUp, because a refusal stays the
// response even if a context is done later.
func inside(x Exchange, what int) {
	if x.Inside() < what {
		x.SetInside(what)
	}
}

// over reports whether ctx, under which the handlers ran, is done, or whether a
// time-out middleware has left a context in the request whose deadline has passed.
func over(ctx context.Context, x Exchange) bool {
	return ctx.Err() != nil || errors.Is(x.Request().Context().Err(), context.DeadlineExceeded)
}
