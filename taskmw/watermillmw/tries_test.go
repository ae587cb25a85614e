package watermillmw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

// TestIdempotent_BusyAfterATry checks a run whose first try has reached the handler.
// The run counts as an attempt, even if the later tries of an inner Retry find the lock
// busy (hazard 75).
func TestIdempotent_BusyAfterATry(t *testing.T) {
	t.Parallel()
	own := errors.New("no connection")
	for name, c := range map[string]struct {
		policy watermillmw.Busy
		first  error // the handler's error in the first try
		again  error // the error of the next delivery
	}{
		"Reschedule":         {watermillmw.Reschedule, own, nil},
		"Fail":               {watermillmw.Fail, own, nil},
		"Reschedule unclear": {watermillmw.Reschedule, context.DeadlineExceeded, once.ErrIndeterminate},
		"Fail unclear":       {watermillmw.Fail, context.DeadlineExceeded, once.ErrIndeterminate},
	} {
		for _, nested := range []string{"", " two Idempotents", " two Locks"} {
			sim(t, name+nested, func(t *testing.T) {
				l := memLocker(t)
				outer, inner := paid(newOnce(t, l, once.AtMostOnce())), locked(l, watermillmw.OnBusy(c.policy), quick)
				lock := inner
				switch nested {
				case " two Idempotents":
					once := watermillmw.Idempotent(newOnce(t, l), "inner", watermillmw.UUID())
					lock = func(h message.HandlerFunc) message.HandlerFunc { return once(inner(h)) }
				case " two Locks":
					around := watermillmw.Lock(l, "tenant", watermillmw.UUID())
					lock = func(h message.HandlerFunc) message.HandlerFunc { return around(inner(h)) }
				}
				var release func()
				retry := middleware.Retry{MaxRetries: 2, InitialInterval: time.Second, OnRetryHook: func(int, time.Duration) {}}
				tries := 0
				taken := func(h message.HandlerFunc) message.HandlerFunc {
					return func(msg *message.Message) ([]*message.Message, error) {
						if tries++; tries == 2 {
							release = hold(t, l, "order:1")
						}
						return h(msg)
					}
				}
				_, _ = outer(retry.Middleware(taken(lock(func(*message.Message) ([]*message.Message, error) { return nil, c.first }))))(order())
				if tries < 2 {
					t.Fatalf("got %d tries, want 2", tries)
				}
				release()
				got := 0
				_, err := outer(func(msg *message.Message) ([]*message.Message, error) {
					got = attempt(msg)
					return nil, nil
				})(order())
				if c.again != nil {
					if !errors.Is(err, c.again) || got != 0 {
						t.Errorf("again: got attempt %d and %v, want %v", got, err, c.again)
					}
				} else if err != nil || got != 2 {
					t.Errorf("again: got attempt %d and %v, want 2", got, err)
				}
			})
		}
	}
}

// TestTries_PublishedInside checks a message that a handler publishes under the context
// of the message that it handles. A Lock whose key is busy nacks the published message
// itself, although that context has the outer message's run.
func TestTries_PublishedInside(t *testing.T) {
	t.Parallel()
	sim(t, "message is nacked", func(t *testing.T) {
		l := memLocker(t)
		hold(t, l, "order:1")
		_, err := paid(newOnce(t, l))(func(msg *message.Message) ([]*message.Message, error) {
			out := message.NewMessage("uuid-2", msg.Payload)
			out.SetContext(msg.Context())
			produced, err := locked(l, quick)(mustNotRun(t))(out)
			postponed(t, "inside", out, produced, err)
			return nil, nil
		})(order())
		if err != nil {
			t.Error(err)
		}
	})
}
