package guard

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
)

// setupError is the error of a middleware that cannot work on its route.
type setupError string

func (e setupError) Error() string { return string(e) }

// misuse records whether the observer was notified that a middleware cannot work.
type misuse struct{ notified atomic.Bool }

// notify notifies the observer of l once, if err is a setupError.
func (m *misuse) notify(ctx context.Context, l *core.Locker, name string, err error) {
	if setup := setupError(""); errors.As(err, &setup) && m.notified.CompareAndSwap(false, true) {
		adapter.Observe(ctx, l, core.Event{Kind: core.Misused, Name: name, Err: setup})
	}
}
