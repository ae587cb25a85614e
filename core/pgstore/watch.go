package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/hub"
	"github.com/lockkit/lockkit/core/store"
)

// Watch implements store.Watcher. All watches of a Store share one connection, which is
// not part of the pool. The first Watch opens the connection, and the Store closes it a
// minute after its last use. If the connection breaks, or the server does not answer
// for some seconds, the channels of all watches are closed. The next Watch opens a new
// connection.
//
// Watch blocks until the server has confirmed that the connection listens. Watch fails
// with:
//   - store.ErrUnsupported after WithoutWakeUps, or if a pooler does not pass
//     notifications on
//   - store.ErrClosed after Close
//   - store.ErrUnavailable if the server has not confirmed this before ctx is done, or
//     within four seconds
func (s *Store) Watch(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
	if err := claims.Check("pgstore", "watch", &c, false); err != nil {
		return nil, err
	}
	if s.quiet {
		return nil, fmt.Errorf("pgstore: watch without wake-ups: %w", store.ErrUnsupported)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pgstore: watch: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	if s.isDeaf() {
		return nil, fmt.Errorf("pgstore: watch: %w", errDeaf)
	}
	ch, err := s.place.hub.Watch(ctx, dialect.WakeUp(c.Key, c.Lease), 2*callLimit, errNoAnswer)
	switch {
	case err == nil:
		return ch, nil
	case errors.Is(err, hub.ErrClosed):
		return nil, fmt.Errorf("pgstore: watch: %w: %w", err, store.ErrClosed)
	case errors.Is(err, store.ErrUnsupported):
		return nil, fmt.Errorf("pgstore: watch: %w", err)
	}
	return nil, fmt.Errorf("pgstore: watch: %w: %w", store.ErrUnavailable, err)
}

var errDeaf = fmt.Errorf("notifications do not arrive, the connection leads through a pooler: "+
	"use WithListener or WithoutWakeUps: %w", store.ErrUnsupported)

// isDeaf reports whether notifications are known not to arrive at present.
func (s *Store) isDeaf() bool {
	until := s.deaf.Load()
	return until != nil && time.Now().Before(*until)
}
