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

// NewSeen returns a Seen that remembers a key for the time keep, at most 24 days, from
// the first call of IsDuplicate with the key. The key at the store is core.Key("seen",
// key). NewSeen panics like New, and if keep is not allowed.
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

// IsDuplicate reports whether key is remembered, and remembers it if not. If several
// callers pass a new key at once, only one of them gets false. After an error it is
// unknown whether the key is remembered. IsDuplicate does not report whether the first
// caller has done its work. Use package once to know that.
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
