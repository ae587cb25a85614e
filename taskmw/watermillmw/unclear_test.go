package watermillmw_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

// TestIdempotent_LostInside runs a handler whose inner lease expires, or whose inner
// time-out has passed, while the lease of the run is still held. With AtMostOnce the
// message must not run again (hazard 59).
func TestIdempotent_LostInside(t *testing.T) {
	t.Parallel()
	short := core.MaxHold(time.Second)
	for name, inside := range map[string]func(t *testing.T, l *core.Locker) message.HandlerMiddleware{
		"one lock": func(_ *testing.T, l *core.Locker) message.HandlerMiddleware {
			return locked(l, watermillmw.Acquire(short))
		},
		"lock around the lost one": func(_ *testing.T, l *core.Locker) message.HandlerMiddleware {
			outer, inner := watermillmw.Lock(l, "tenant", watermillmw.UUID()), locked(l, watermillmw.Acquire(short))
			return func(h message.HandlerFunc) message.HandlerFunc { return outer(inner(h)) }
		},
		"run in a run": func(t *testing.T, l *core.Locker) message.HandlerMiddleware {
			return watermillmw.Idempotent(newOnce(t, l, once.Acquire(short)), "inner", watermillmw.UUID())
		},
		"handler with time-out": func(*testing.T, *core.Locker) message.HandlerMiddleware { return middleware.Timeout(time.Second) },
		"lock around the time-out": func(_ *testing.T, l *core.Locker) message.HandlerMiddleware {
			outer, inner := locked(l), middleware.Timeout(time.Second)
			return func(h message.HandlerFunc) message.HandlerFunc { return outer(inner(h)) }
		},
	} {
		sim(t, name, func(t *testing.T) {
			l := memLocker(t)
			outer, inner := paid(newOnce(t, l, once.AtMostOnce())), inside(t, l)
			interrupted := errors.New("bank: interrupted")
			_, err := outer(inner(func(msg *message.Message) ([]*message.Message, error) {
				<-msg.Context().Done()
				return nil, interrupted
			}))(order())
			if !errors.Is(err, interrupted) {
				t.Errorf("got %v, want %v", err, interrupted)
			}
			if _, err := outer(inner(mustNotRun(t)))(order()); !errors.Is(err, once.ErrIndeterminate) {
				t.Errorf("again: got %v, want %v", err, once.ErrIndeterminate)
			}
		})
	}
}
