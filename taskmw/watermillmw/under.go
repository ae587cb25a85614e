package watermillmw

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// under runs next with ctx as the context of msg, which is derived from the present one. When
// it returns, msg has its context again: a Retry around calls the middleware with the same
// message, and ctx is canceled by then. So have messages that were produced under ctx, since
// publishers use their contexts.
func under(ctx context.Context, msg *message.Message, next message.HandlerFunc) ([]*message.Message, error) {
	outer, run := msg.Context(), new(int)
	msg.SetContext(context.WithValue(ctx, runKey{}, run))
	defer msg.SetContext(outer)
	produced, err := next(msg)
	for _, p := range produced {
		if p != nil && p != msg && p.Context().Value(runKey{}) == run {
			p.SetContext(detached{outer, p.Context()})
		}
	}
	return produced, err
}

type runKey struct{}

// detached is done when its Context is, and has the values of another one.
type detached struct {
	context.Context
	values context.Context
}

func (d detached) Value(key any) any {
	switch key {
	case runKey{}:
		return d.Context.Value(key) // of the run around
	case refusedKey{}:
		return nil // what becomes of a produced message is its own
	}
	return d.values.Value(key)
}
