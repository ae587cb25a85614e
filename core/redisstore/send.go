package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/brief"
)

// callLimit bounds a call.
const callLimit = 2 * time.Second

var errNoAnswer = fmt.Errorf("no answer within %v", callLimit)

// bounded gives ctx a deadline of callLimit if it has none that is sooner.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= callLimit {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, callLimit, errNoAnswer)
}

// leave runs work where the caller can leave it when ctx ends. The client
// itself may not: by default go-redis does not apply a context's deadline to a
// socket, and never its cancellation. What work returns after that is dropped.
func leave[T any](ctx context.Context, f *flight, work func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	var none T
	if ctx.Err() != nil {
		f.leave()
		return none, context.Cause(ctx)
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if r := recover(); r != nil {
				o.err = fmt.Errorf("panic in the client: %v", r)
			}
			done <- o
		}()
		o.value, o.err = work()
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	f.leave()
	select {
	case o := <-done:
		return o.value, o.err
	default:
		return none, context.Cause(ctx)
	}
}

// call sends c and returns its answer.
func (s *Store) call(ctx context.Context, op string, c *command) (answer, error) {
	v, err := s.exchange(ctx, c)
	if isReply(err, "NOSCRIPT") && c.flight.again() {
		w := c.whole(ctx)
		w.first = nil
		v, err = s.exchange(ctx, w)
	}
	if err != nil {
		return answer{}, s.failure(ctx, op, c.flight, err)
	}
	return parse(op, v)
}

// exchange sends c once and returns the reply.
func (s *Store) exchange(ctx context.Context, c *command) (any, error) {
	if s.cluster == nil {
		return s.sender.exchange(ctx, c)
	}
	last := c
	if sender := s.fleet.senderOf(ctx, c.key.String()); sender != nil {
		v, err := sender.exchange(ctx, c)
		if !elsewhere(err) || !c.flight.again() {
			return v, err
		}
		last = c.whole(ctx)
	}
	// The client looks where the slots are, and follows a slot that has moved.
	ctx, cancel := bounded(ctx)
	defer cancel()
	return leave(ctx, c.flight, func() (any, error) {
		for sent := 1; ; sent++ {
			err := s.client.Process(ctx, last)
			if err == nil {
				s.fleet.known.Store(true)
			}
			if !moved(err) || !c.flight.again() || !pursue(ctx, sent) {
				return c.reply(last)
			}
			last = c.whole(ctx)
		}
	})
}

// pursue waits until a call that has been sent n times, and was told each time
// that its slot is elsewhere, may be sent once more. It is false when it may not.
// While a slot is handed over its two masters can name each other for a moment,
// and a slot that moves to and fro can be a step ahead. The waits are half a
// second together.
func pursue(ctx context.Context, n int) bool {
	if n > 10 {
		return false
	}
	timer := time.NewTimer(time.Millisecond / 2 << (n - 1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// moved tells that err says that the slot is elsewhere.
func moved(err error) bool { return isReply(err, "MOVED") || isReply(err, "ASK") }

// elsewhere tells that err says no more than that another server has to be
// asked.
func elsewhere(err error) bool {
	return moved(err) || isReply(err, "READONLY") || errors.Is(err, redis.ErrClosed)
}

// failure gives err its class, and has a cluster client look again where the
// slots are: it would do so by itself only when it sends a command once more.
func (s *Store) failure(ctx context.Context, op string, f *flight, err error) error {
	if s.cluster != nil {
		s.cluster.ReloadState(ctx)
	}
	return failure(ctx, op, f, err)
}

// failure gives err its class: it matches core.ErrUnavailable if the call
// certainly changed nothing.
func failure(ctx context.Context, op string, f *flight, err error) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		// The socket has the same deadline and can be a moment ahead.
		<-ctx.Done()
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	err = brief.Error(err)
	if f.recall() || refused(err) {
		return fmt.Errorf("redisstore: %s: %w: %w", op, core.ErrUnavailable, err)
	}
	return fmt.Errorf("redisstore: %s: outcome unknown: %w", op, err)
}

// Limit implements core.Prompt.
func (s *Store) Limit() time.Duration { return callLimit }
