package named

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/retry"
)

// kept takes keys that are never given back: they are free again after a time.
type kept struct {
	locker *core.Locker
	kind   string // the first part of the keys
	opts   []core.AcquireOption
}

func newKept(kind string, l *core.Locker, keep time.Duration, opts []core.AcquireOption) kept {
	if l == nil {
		panic("named: locker is nil")
	}
	if keep <= 0 {
		panic("named: keys are kept for a positive time")
	}
	if _, err := l.Check(append(opts[:len(opts):len(opts)], core.KeepFor(keep))...); err != nil {
		panic("named: " + err.Error())
	}
	return kept{l, kind, opts}
}

// take takes key for d, if it is free.
func (k kept) take(ctx context.Context, key string, d time.Duration) error {
	lease, err := k.locker.TryAcquire(ctx, core.Key(k.kind, key), append(k.opts[:len(k.opts):len(k.opts)], core.KeepFor(d))...)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// Seen remembers keys for a time, as watermill's ExpiringKeyRepository does.
type Seen struct {
	kept kept
	keep time.Duration
}

// NewSeen makes a Seen that remembers a key for keep, up to 24 days, from when it was
// first asked for. Its keys are core.Key("seen", key). It panics as New does, and if keep
// is not allowed.
func NewSeen(l *core.Locker, keep time.Duration, opts ...core.AcquireOption) *Seen {
	return &Seen{newKept("seen", l, keep, opts), keep}
}

// IsDuplicate returns true if key is remembered, and remembers it from now on if not.
// Of several that ask at once one is told false. After an error it may be remembered or
// not. It does not say that the work of the first one was done: for that there is package
// once.
func (s *Seen) IsDuplicate(ctx context.Context, key string) (bool, error) {
	err := s.kept.take(ctx, key, s.keep)
	if errors.Is(err, core.ErrBusy) && ctx.Err() == nil {
		return true, nil
	}
	return false, err
}

// Until takes keys until a point in time, as machinery's iface.Lock does.
type Until struct {
	kept kept
	most time.Duration
}

// NewUntil makes an Until whose LockWithRetries waits for most at the longest. Its keys
// are core.Key("until", key). It panics as New does, and if most is not positive.
func NewUntil(l *core.Locker, most time.Duration, opts ...core.AcquireOption) *Until {
	if most <= 0 {
		panic("named: an Until waits for a positive time")
	}
	return &Until{newKept("until", l, time.Second, opts), most}
}

// Lock takes key until unixNano, in nanoseconds since 1970 by this process's clock, at
// the most 24 days from now. It fails with core.ErrBusy if the key is taken, and with
// core.ErrInvalid if that time is over.
func (u *Until) Lock(key string, unixNano int64) error {
	return u.take(context.Background(), key, unixNano)
}

// LockWithRetries is Lock that asks again while the key is taken.
func (u *Until) LockWithRetries(key string, unixNano int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), u.most)
	defer cancel()
	_, err := retry.Do(ctx, retry.LockWait, func(ctx context.Context) (struct{}, error) {
		err := u.take(ctx, key, unixNano)
		if !errors.Is(err, core.ErrBusy) {
			err = retry.Stop(err)
		}
		return struct{}{}, err
	})
	return err
}

func (u *Until) take(ctx context.Context, key string, unixNano int64) error {
	left := time.Until(time.Unix(0, unixNano))
	if left <= 0 {
		return fmt.Errorf("lock until: that is over: %w", core.ErrInvalid)
	}
	return u.kept.take(ctx, key, left)
}
