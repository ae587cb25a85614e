package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/retry"
)

// storeCalls makes the calls of a Locker to its store, with time limits and retries.
type storeCalls struct {
	store Store
	limit time.Duration // the store's own limit of one call; 0 if unknown
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

// bounded returns a context that limits a call to the store to the time d. ttl is the
// TTL of the claim, for the text of the error. bounded returns ctx itself if the
// store's own limit is at most d.
func (cs *storeCalls) bounded(ctx context.Context, d, ttl time.Duration) (context.Context, context.CancelFunc) {
	if cs.limit > 0 && cs.limit <= d {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, d, &lateError{d, ttl})
}

// lateError is the cause with which bounded cancels the context of a call that takes
// longer than limit. It matches context.DeadlineExceeded.
type lateError struct{ limit, ttl time.Duration }

func (e *lateError) Error() string {
	text := fmt.Sprintf("no answer within %d ms", e.limit.Milliseconds())
	if e.limit == budget(e.ttl) && e.limit < budget(maxTTL) {
		text += fmt.Sprintf(", the limit of a call where the TTL is %s (a longer TTL raises it)", words.Duration(e.ttl))
	}
	return text
}

func (*lateError) Unwrap() error { return context.DeadlineExceeded }

// errPanicked is the error for callers that wait for another goroutine's call to the
// store, if that call panics.
var errPanicked = errors.New("store call panicked")

// errNoAnswer is the error of a claim for which Store.Extend has returned no answer.
var errNoAnswer = errors.New("the store gave no answer")

// extend asks the store once to extend claims, and waits for the answers for at most
// limit. It returns the time at which the call began, and an answer for each claim, in
// which Valid is set.
func (cs *storeCalls) extend(ctx context.Context, limit time.Duration, claims []store.Claim) (start clock.Moment, answers []store.Extension) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start = cs.now()
	answers = slices.Repeat([]store.Extension{{Err: errNoAnswer}}, len(claims))
	copy(answers, cs.store.Extend(ctx, claims))
	for i, c := range claims {
		answers[i].Valid = cmp.Or(answers[i].Valid, c.TTL)
	}
	return start, answers
}

// releasing is a claim that is being released.
type releasing struct {
	store.Claim
	instead *store.Record // saved in place of Record if its value is too long, see Lease.FinishLong
	name    string        // the lease's name, for events
	mode    Mode
}

// save makes the release save r, or the substitute instead if r is too long.
func (c *releasing) save(r, instead *store.Record) { c.Record, c.instead = r, instead }

// release releases c at the store. settled reports whether c is released, or the store
// has answered that it no longer has c. For a claim without a record, assumed reports
// that the store no longer has c after an attempt with an unknown outcome. That attempt
// has then probably released c.
//
// A store can refuse a long value by closing the connection. So after an unknown
// outcome the substitute (c.instead), if it is set, replaces a record with a long
// value. After ErrInvalid it replaces any record. The error then has the reason why the
// value may not be stored. The error matches ErrLost only if the value is not stored.
func (cs *storeCalls) release(c *releasing, until time.Time) (assumed, settled bool, err error) {
	unknown := false
	var unsaved error // the error because of which the record was replaced
	err = cs.persist(c.TTL, until, func(ctx context.Context) error {
		err := cs.store.Release(ctx, c.Claim)
		switch {
		case errors.Is(err, ErrLost) && unknown && c.Record == nil:
			assumed = true
			return nil
		case err == nil, errors.Is(err, ErrLost), errors.Is(err, ErrUnavailable):
		default:
			unknown = unknown || !errors.Is(err, ErrInvalid)
			if (isLong(c.Record) || errors.Is(err, ErrInvalid)) && c.shorten() {
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
	case unsaved != nil && (unknown || !errors.Is(err, ErrLost)):
		err = fmt.Errorf("%w: the run is done, but its value may not be stored: %v", ErrUnavailable, unsaved)
	}
	return assumed, settled, err
}

// longValue is the length in bytes above which a value counts as long, see FinishLong.
// It is below the limit of Redis (proto-max-bulk-len), which is at least 1 MiB.
const longValue = 512 << 10

func isLong(r *store.Record) bool { return r != nil && len(r.Value) > longValue }

func (c *releasing) shorten() bool {
	if c.Record == nil || c.instead == nil {
		return false
	}
	c.Record, c.instead = c.instead, nil
	return true
}

// persist calls the function call until it returns nil or ErrLost, with the attempts
// and pauses of retry.Hiccup. It returns by the time until. The time limit of each call
// is budget(ttl).
func (cs *storeCalls) persist(ttl time.Duration, until time.Time, call func(ctx context.Context) error) error {
	_, err := retry.Do(context.Background(), retry.Hiccup, func(ctx context.Context) (struct{}, error) {
		ctx, cancel := cs.bounded(ctx, min(budget(ttl), time.Until(until)), ttl)
		defer cancel()
		err := call(ctx)
		if err != nil && (errors.Is(err, ErrLost) || time.Until(until) <= retry.Hiccup.Max) {
			err = retry.Stop(err)
		}
		return struct{}{}, err
	})
	return err
}

// says reports whether err, the error of a call to a store under ctx, matches sentinel
// as an answer of the store. A store may return the cause of a done ctx, which is not
// an answer. The cause can be any error, even an error of this package. For example,
// errgroup cancels its context with the first error of its functions.
func says(ctx context.Context, err, sentinel error) bool {
	return errors.Is(err, sentinel) && !errors.Is(context.Cause(ctx), sentinel)
}

// answered reports whether err is an answer of the store, so that the outcome of the
// call is known.
func answered(ctx context.Context, err error) bool {
	return says(ctx, err, ErrBusy) || says(ctx, err, ErrLost) || says(ctx, err, ErrInvalid) || says(ctx, err, ErrUnsupported)
}

// unavailable returns the error of an operation that the store did not answer.
func unavailable(op, name string, err error) error {
	if errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("core: %s %q: %w", op, name, err)
	}
	return fmt.Errorf("core: %s %q: %w: %w", op, name, ErrUnavailable, err)
}
