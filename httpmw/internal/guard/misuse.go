package guard

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
)

// setupError says that a middleware cannot work where it is mounted.
type setupError string

func (e setupError) Error() string { return string(e) }

// misuse is whether the observer was told that a middleware cannot work.
type misuse struct{ told atomic.Bool }

// tell tells the observer of l once, if that is what err says.
func (m *misuse) tell(ctx context.Context, l *core.Locker, name string, err error) {
	if setup := setupError(""); errors.As(err, &setup) && m.told.CompareAndSwap(false, true) {
		adapter.Observe(ctx, l, core.Event{Kind: core.Misused, Name: name, Err: setup})
	}
}
