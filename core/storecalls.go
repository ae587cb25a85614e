package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

// bounded bounds a call to the store, for a claim of ttl, by d. The store may do it itself.
func (l *Locker) bounded(ctx context.Context, d, ttl time.Duration) (context.Context, context.CancelFunc) {
	if l.callTime > 0 && l.callTime <= d {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, &lateError{d, ttl})
}

// lateError is the cause of the context of a call that has taken longer than limit. It
// matches context.DeadlineExceeded.
type lateError struct{ limit, ttl time.Duration }

func (e *lateError) Error() string {
	text := fmt.Sprintf("no answer within %d ms", e.limit.Milliseconds())
	if e.limit == budget(e.ttl) && e.limit < budget(maxTTL) {
		text += fmt.Sprintf(", the limit of a call where the TTL is %v (a longer TTL raises it)", e.ttl)
	}
	return text
}

func (*lateError) Unwrap() error { return context.DeadlineExceeded }

// errNoAnswer stands for a missing answer of Store.Extend. It confirms nothing.
var errNoAnswer = errors.New("the store gave no answer")

// extend asks the store once, for limit at most, to extend holds, each for ttl or, if that
// is 0, for its own TTL, and notes what the store confirms. It returns the beginning of the
// call, and the answer for each hold; Valid is set in it.
func (l *Locker) extend(ctx context.Context, limit, ttl time.Duration, holds []*hold) (start clock.Moment, answers []store.Extension) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start = l.now()
	claims := make([]store.Claim, len(holds))
	for i, h := range holds {
		claims[i] = h.claim()
		claims[i].TTL = cmp.Or(ttl, h.ttl)
	}
	answers = slices.Repeat([]store.Extension{{Err: errNoAnswer}}, len(holds)) // where the store gives none
	copy(answers, l.store.Extend(ctx, claims))
	for i, h := range holds {
		if x := &answers[i]; x.Err == nil {
			x.Valid = cmp.Or(x.Valid, ttl, h.ttl)
			h.confirm(start, x.Valid)
		}
	}
	return start, answers
}

// releasing is a claim that is being released.
type releasing struct {
	store.Claim
	instead *store.Record // saved in place of Record if that is too long, see Lease.FinishLong
}

// release releases c at the store. Assumed is set if the store no longer had it, which is
// put down to an earlier attempt without an answer.
//
// A store can refuse a long value by closing the connection, so a long one without an answer
// is not sent again. The record instead takes its place, if there is one, in c too. If the
// store has that one, or has one already, the claim is settled, and the error gives the
// reason why the value may not be stored.
func (l *Locker) release(c *releasing, until time.Time) (assumed, settled bool, err error) {
	unknown := false
	var unsaved error // why the record was replaced
	err = l.persist(c.TTL, until, func(ctx context.Context) error {
		err := l.store.Release(ctx, c.Claim)
		switch {
		case errors.Is(err, ErrLost) && unknown && c.Record == nil:
			assumed = true // by the earlier attempt
			return nil
		case err != nil && !errors.Is(err, ErrUnavailable):
			unknown = true
			if isLong(c.Record) && c.shorten() {
				unsaved = err
			}
		}
		return err
	})
	settled = err == nil || errors.Is(err, ErrLost)
	switch {
	case !settled:
		if isLong(c.Record) {
			c.shorten()
		}
	case unsaved != nil:
		err = fmt.Errorf("%w: the run is done, but its long value may not be stored: %w", ErrUnavailable, unsaved)
	}
	return assumed, settled, err
}

// shorten replaces the record by the one to save instead, and reports whether there is one.
func (c *releasing) shorten() bool {
	if c.Record == nil || c.instead == nil {
		return false
	}
	c.Record, c.instead = c.instead, nil
	return true
}

// persist repeats call until the store answers, at the pace of retry.Hiccup and no later
// than until. Each call has the budget of ttl.
func (l *Locker) persist(ttl time.Duration, until time.Time, call func(ctx context.Context) error) error {
	_, err := retry.Do(context.Background(), retry.Hiccup, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := l.bounded(ctx, min(budget(ttl), time.Until(until)), ttl)
		defer cancel()
		err := call(ctx)
		if errors.Is(err, ErrLost) || time.Until(until) <= retry.Hiccup.Max {
			err = retry.Stop(err)
		}
		return struct{}{}, err
	})
	return err
}
