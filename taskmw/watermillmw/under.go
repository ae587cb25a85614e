package watermillmw

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// run is one call of an inner handler by a middleware.
type run struct {
	tries  *tries        // the record of the call
	waited time.Duration // the total wait for keys of this middleware and its outer middlewares
}

type runKey struct{}

// under calls next with ctx as the context of msg, and records the call in r.tries. ctx
// is derived from the current context of msg. under restores that context before it
// returns. An outer Retry calls the middleware with the same message after ctx was
// canceled. The router calls publishers when ctx is done, and publishers use the
// messages' contexts. So under detaches the messages that were produced under ctx.
func under(ctx context.Context, msg *message.Message, r *run, next message.HandlerFunc) (produced []*message.Message, err error) {
	outer := msg.Context()
	msg.SetContext(context.WithValue(ctx, runKey{}, r))
	defer msg.SetContext(outer)
	r.tries.postponed = nil
	before, returned := r.tries.recorded, false
	defer func() { // even if next panics
		if !isNotRun(err) {
			r.tries.record(before, returned && isUnclear(ctx, msg, err))
		}
	}()
	produced, err = next(msg)
	returned = true
	for _, p := range produced {
		if p != nil && p != msg && p.Context().Value(runKey{}) == r {
			p.SetContext(detached{outer, p.Context()})
		}
	}
	return produced, err
}

// detached is done when its Context is done, and has the values of another context.
type detached struct {
	context.Context
	values context.Context
}

func (d detached) Value(key any) any {
	if key == (runKey{}) {
		return d.Context.Value(key) // the run of the outer middleware
	}
	return d.values.Value(key)
}
