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

// storeCalls is the store of a Locker, with the limits and repetitions of extensions
// and releases.
type storeCalls struct {
	store Store
	limit time.Duration // of one call, by the store itself; 0 if unknown
	clock clock.Clock
}

func newStoreCalls(s Store, c clock.Clock) storeCalls {
	cs := storeCalls{store: s, clock: c}
	if p, ok := s.(store.Prompt); ok {
		cs.limit = p.Limit()
	}
	return cs
}

func (cs *storeCalls) now() clock.Moment { return cs.clock() }

// bounded bounds a call to the store, for a claim of ttl, by d. It adds no bound if the
// store keeps within d itself.
func (cs *storeCalls) bounded(ctx context.Context, d, ttl time.Duration) (context.Context, context.CancelFunc) {
	if cs.limit > 0 && cs.limit <= d {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, &lateError{d, ttl})
}

// lateError is the cause of the context of a call that took longer than limit. It
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

// errNoEnd is the error for callers that wait for a call that has panicked.
var errNoEnd = errors.New("store call panicked")

// errNoAnswer stands for a missing answer of Store.Extend. It confirms nothing.
var errNoAnswer = errors.New("the store gave no answer")

// extend asks the store once, for at most limit, to extend claims. It returns the
// beginning of the call, and the answer for each claim with Valid set.
func (cs *storeCalls) extend(ctx context.Context, limit time.Duration, claims []store.Claim) (start clock.Moment, answers []store.Extension) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start = cs.now()
	answers = slices.Repeat([]store.Extension{{Err: errNoAnswer}}, len(claims)) // where the store gives no answer
	copy(answers, cs.store.Extend(ctx, claims))
	for i, c := range claims {
		answers[i].Valid = cmp.Or(answers[i].Valid, c.TTL)
	}
	return start, answers
}

// releasing is a claim that is being released.
type releasing struct {
	store.Claim
	instead *store.Record // saved in place of Record if that is too long, see Lease.FinishLong
	name    string        // of the lease
	mode    Mode
}

// save makes the release save r, or instead if r is too long.
func (c *releasing) save(r, instead *store.Record) { c.Record, c.instead = r, instead }

// release releases c at the store. It sets assumed if the store no longer had c after
// an attempt without an answer, which is assumed to have released it.
//
// A store can refuse a long value by closing the connection, so a long value without an
// answer is not sent again. The record instead takes its place, if there is one, in c
// too. If the store has that record, or has one already, the claim is settled. The
// error then has the reason why the value may not be stored.
func (cs *storeCalls) release(c *releasing, until time.Time) (assumed, settled bool, err error) {
	unknown := false
	var unsaved error // why the record was replaced
	err = cs.persist(c.TTL, until, func(ctx context.Context) error {
		err := cs.store.Release(ctx, c.Claim)
		switch {
		case errors.Is(err, ErrLost) && unknown && c.Record == nil:
			assumed = true // that the earlier attempt released it
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

// longValue is the length above which a value is not sent again, see FinishLong. The
// least limit of Redis (proto-max-bulk-len) is 1 MiB.
const longValue = 512 << 10

func isLong(r *store.Record) bool { return r != nil && len(r.Value) > longValue }

// shorten replaces the record by instead, and reports whether there is one.
func (c *releasing) shorten() bool {
	if c.Record == nil || c.instead == nil {
		return false
	}
	c.Record, c.instead = c.instead, nil
	return true
}

// persist repeats call until the store answers, at the pace of retry.Hiccup and no
// later than until. Each call has the budget of ttl.
func (cs *storeCalls) persist(ttl time.Duration, until time.Time, call func(ctx context.Context) error) error {
	_, err := retry.Do(context.Background(), retry.Hiccup, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := cs.bounded(ctx, min(budget(ttl), time.Until(until)), ttl)
		defer cancel()
		err := call(ctx)
		if errors.Is(err, ErrLost) || time.Until(until) <= retry.Hiccup.Max {
			err = retry.Stop(err)
		}
		return struct{}{}, err
	})
	return err
}

// says reports whether err, the error of a call to a store under ctx, matches sentinel
// as an answer of the store. A store may return the cause of a done ctx, which is no
// answer. That cause can be any error, even one of this package: errgroup cancels the
// context of its other functions with the error of the first.
func says(ctx context.Context, err, sentinel error) bool {
	return errors.Is(err, sentinel) && !errors.Is(context.Cause(ctx), sentinel)
}

// answered reports whether err is an answer of the store, so that the outcome is known.
func answered(ctx context.Context, err error) bool {
	return says(ctx, err, ErrBusy) || says(ctx, err, ErrLost) || says(ctx, err, ErrInvalid) || says(ctx, err, ErrUnsupported)
}

// unavailable returns the error of an operation that the store did not answer.
func unavailable(op, name string, err error) error {
	if errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%s %s: %w", op, name, err)
	}
	return fmt.Errorf("%s %s: %w: %w", op, name, ErrUnavailable, err)
}
