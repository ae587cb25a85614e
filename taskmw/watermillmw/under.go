package watermillmw

import (
	"bytes"
	"context"
	"maps"
	"slices"
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
//
// under also restores the UUID, the payload and the metadata of msg. Some subscribers
// deliver a copy of msg again after a nack. If next had changed msg, that copy would
// have another key. If next has produced msg itself, under returns a copy.
func under(ctx context.Context, msg *message.Message, r *run, next message.HandlerFunc) (produced []*message.Message, err error) {
	outer, uuid, payload, metadata := msg.Context(), msg.UUID, msg.Payload, msg.Metadata
	// A broker in memory shares the payload of its messages.
	msg.Payload, msg.Metadata = bytes.Clone(payload), maps.Clone(metadata)
	msg.SetContext(context.WithValue(ctx, runKey{}, r))
	defer func() {
		msg.SetContext(outer)
		// A subscriber may already copy a message that next has nacked. So only what next
		// has changed is written.
		if msg.UUID != uuid {
			msg.UUID = uuid
		}
		if !bytes.Equal(msg.Payload, payload) {
			msg.Payload = payload
		}
		if !maps.Equal(msg.Metadata, metadata) {
			msg.Metadata = metadata
		}
	}()
	r.tries.postponed = nil
	before, returned := r.tries.recorded, false
	defer func() { // even if next panics
		if !isNotRun(err) {
			r.tries.record(before, !returned || isUnclear(ctx, msg, err))
		}
	}()
	produced, err = next(msg)
	returned = true
	if slices.Contains(produced, msg) {
		changed := msg.Copy()
		changed.Payload = bytes.Clone(msg.Payload) // next can keep msg, and change it later
		changed.SetContext(msg.Context())
		produced = slices.Clone(produced)
		for i, p := range produced {
			if p == msg {
				produced[i] = changed
			}
		}
	}
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
