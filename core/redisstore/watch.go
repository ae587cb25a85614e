package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockkit/lockkit/core/internal/brief"
	"github.com/lockkit/lockkit/core/internal/hub"
	"github.com/lockkit/lockkit/core/redisstore/internal/pipeline"
	"github.com/lockkit/lockkit/core/store"
)

// Watch implements store.Watcher. All watches of a Store share one subscription to the
// Store's pub/sub channel. The first watch opens the subscription. With WithRedisson each
// lock has a pub/sub channel, and the watches of a server share one connection. The
// subscription breaks if the connection fails, or if the server has not answered a PING
// for some seconds. The Store then closes all channels that Watch has returned for that
// connection.
//
// With plain keys Watch fails with store.ErrUnsupported, and after Close with
// store.ErrClosed. It fails with store.ErrUnavailable if the server is known to be down,
// or does not confirm the subscription within two seconds and before ctx is done.
func (s *Store) Watch(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
	if err := s.usable("watch", &c); err != nil {
		return nil, err
	}
	if s.plain {
		return nil, s.unsupported("watch", "wake-ups")
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("redisstore: watch: %w: %w", store.ErrUnavailable, pipeline.Cause(ctx))
	}
	if err := s.pipeline.Enter(ctx); err != nil {
		return nil, fmt.Errorf("redisstore: watch: %w: %w", store.ErrUnavailable, brief.Error(err))
	}
	watch := s.watch
	if s.redisson {
		watch = s.watchChannel
	}
	ch, err := watch(ctx, &c)
	if errors.Is(err, hub.ErrClosed) {
		return nil, fmt.Errorf("redisstore: watch: %w: %w", err, store.ErrClosed)
	}
	if err != nil {
		if s.cluster != nil {
			// Otherwise the client would find its new nodes only after a minute.
			s.cluster.ReloadState(ctx)
		}
		return nil, fmt.Errorf("redisstore: watch: %w: %w", store.ErrUnavailable, brief.Error(err))
	}
	return ch, nil
}

func (s *Store) watch(ctx context.Context, c *store.Claim) (<-chan struct{}, error) {
	return s.hub.Watch(ctx, s.key(c.Key)+" "+c.Lease, pipeline.Limit, pipeline.ErrNoAnswer)
}

// watched is the Store's data of a watch.
type watched struct {
	place  place
	pushed *pushed // nil if no grant has arrived
}

// wake wakes the watch of the waiter that a message names. lua/messages.lua describes the
// message. If the message contains a grant, the next Acquire returns that grant, see
// push.go.
func wake(l *hub.Listener[watched], text string) {
	of, grant, granted := strings.Cut(text, "\n")
	l.Wake(of, func(w *watched) {
		if granted {
			w.pushed = readPush(grant)
		}
	})
}
