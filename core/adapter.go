package core

import (
	"context"
	"errors"
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

// FailOpen is for adapters with an option of that name. It tells whether work whose
// acquire under ctx failed with err may run without its lock, and gives the context
// for that, of which Unlocked is true. It may if the store could not be asked
// (ErrUnavailable), and never if the key was busy or lost, the Locker is closed or ctx
// has ended. If it may, the observer is told so, by name.
func (l *Locker) FailOpen(ctx context.Context, name string, err error) (context.Context, bool) {
	if !errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
		return ctx, false
	}
	for _, answer := range []error{ErrBusy, ErrLost, ErrClosed} {
		if errors.Is(err, answer) {
			return ctx, false
		}
	}
	l.observe(ctx, Event{Kind: RanUnlocked, Name: name, Err: err})
	return context.WithValue(ctx, unlockedKey{}, true), true
}

// Observe tells this Locker's observer of e. It is for adapters, which have
// nobody else to tell; they must not put a key, an owner or a token into e.
func (l *Locker) Observe(ctx context.Context, e Event) { l.observe(ctx, e) }
