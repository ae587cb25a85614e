package core

import (
	"context"
	"time"
)

// Limits tells how long an acquire with opts, on top of this Locker's defaults,
// may hold: the TTL of its lease, and its MaxHold, 0 if it has none. Adapters
// whose requests have a deadline derive a MaxHold from it. It fails with
// ErrInvalid where Check does.
func (l *Locker) Limits(opts ...AcquireOption) (ttl, maxHold time.Duration, err error) {
	r, err := l.request("check", opts)
	if err != nil {
		return 0, 0, err
	}
	return r.ttl, r.maxHold, nil
}

// Observe tells this Locker's observer of e. It is for adapters, which have
// nobody else to tell; they must not put a key, an owner or a token into e.
func (l *Locker) Observe(ctx context.Context, e Event) { l.observe(ctx, e) }
