package named

import (
	"context"
	"errors"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/adapter"
)

// Seen remembers keys for a time, as watermill's ExpiringKeyRepository does.
type Seen struct {
	locker *core.Locker
	opts   []core.AcquireOption
}

// NewSeen makes a Seen that remembers a key for keep, up to 24 days, from when it was
// first asked for. Its keys are core.Key("seen", key). It panics as New does, and if keep
// is not allowed.
func NewSeen(l *core.Locker, keep time.Duration, opts ...core.AcquireOption) *Seen {
	if l == nil {
		panic("named: locker is nil")
	}
	if keep <= 0 {
		panic("named: keys are kept for a positive time")
	}
	opts = append(opts[:len(opts):len(opts)], core.KeepFor(keep))
	if _, err := adapter.Check(l, opts...); err != nil {
		panic("named: " + err.Error())
	}
	return &Seen{l, opts}
}

// IsDuplicate returns true if key is remembered, and remembers it from now on if not.
// Of several that ask at once one is told false. After an error it may be remembered or
// not. It does not say that the work of the first one was done: for that there is package
// once.
func (s *Seen) IsDuplicate(ctx context.Context, key string) (bool, error) {
	lease, err := s.locker.TryAcquire(ctx, core.Key("seen", key), s.opts...)
	if err == nil {
		err = lease.Release(ctx)
	}
	if errors.Is(err, core.ErrBusy) && ctx.Err() == nil {
		return true, nil
	}
	return false, err
}
