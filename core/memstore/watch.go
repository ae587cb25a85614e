package memstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/lockkit/lockkit/core/store"
)

type watched struct{ key, lease string }

// Watch implements store.Watcher. The channel buffers one wake-up. Further wake-ups are
// dropped until the buffered one is received. The channel is never closed, because the
// watch does not break. After ctx is done it receives no more wake-ups.
func (s *Store) Watch(ctx context.Context, c store.Claim) (<-chan struct{}, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("memstore: watch: %w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	at, ch := watched{c.Key, c.Lease}, make(chan struct{}, 1)
	s.mu.Lock()
	s.watches[at] = append(s.watches[at], ch)
	s.mu.Unlock()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		rest := slices.DeleteFunc(s.watches[at], func(other chan struct{}) bool { return other == ch })
		if len(rest) == 0 {
			delete(s.watches, at)
			return
		}
		s.watches[at] = rest
	})
	return ch, nil
}

func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
