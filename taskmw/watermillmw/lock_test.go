package watermillmw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

func TestLock(t *testing.T) {
	t.Parallel()

	t.Run("runs under its lease", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		msg, out := order(), message.NewMessage("out", nil)
		own := errors.New("own")
		produced, err := locked(l)(func(msg *message.Message) ([]*message.Message, error) {
			if lease, ok := core.LeaseFromContext(msg.Context()); !ok || lease.Key() != "order:1" || isFree(t, l, "order:1") {
				t.Error("got no lease of the key")
			}
			return []*message.Message{out}, own
		})(msg)
		if !errors.Is(err, own) || len(produced) != 1 || produced[0] != out || isNacked(msg) {
			t.Errorf("got %v and %v, want what the handler returns", produced, err)
		}
		if !isFree(t, l, "order:1") {
			t.Error("got a busy key, want it released")
		}
	})

	// This case covers hazard 50.
	t.Run("released after a panic", func(t *testing.T) {
		t.Parallel()
		l, msg := memLocker(t), order()
		func() {
			defer func() { _ = recover() }()
			_, _ = locked(l)(func(*message.Message) ([]*message.Message, error) { panic("handler") })(msg)
		}()
		if !isFree(t, l, "order:1") || msg.Context().Err() != nil {
			t.Errorf("got a busy key, or a message whose context is done: %v", msg.Context().Err())
		}
	})

	t.Run("released after its context", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := locked(l)(func(*message.Message) ([]*message.Message, error) {
			cancel()
			return nil, nil
		})(under(ctx, order()))
		if err != nil || !isFree(t, l, "order:1") {
			t.Errorf("got %v, want a free key", err)
		}
	})

	// A Retry calls the middleware again with the same message.
	t.Run("restores the context", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		msg := under(context.WithValue(t.Context(), ctxKey{}, "kept"), order())
		ctx := msg.Context()
		for range 2 {
			if _, err := locked(l)((&counter{}).handle)(msg); err != nil || msg.Context() != ctx {
				t.Fatalf("got %v and the context %v, want the one before", err, msg.Context())
			}
		}
	})

	t.Run("locks both keys", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		also := locked(l, watermillmw.Also(watermillmw.Metadata("to")))
		_, err := also(func(*message.Message) ([]*message.Message, error) {
			if isFree(t, l, "order:1") || isFree(t, l, "order:2") {
				t.Error("got a free key, want two that are taken")
			}
			return nil, nil
		})(order("to", "2"))
		if err != nil || !isFree(t, l, "order:2") {
			t.Errorf("got %v, want a free key", err)
		}
	})

	sim(t, "FailOpen without the store", func(t *testing.T) {
		l, down := outage(t)
		down(true)
		unlocked := false
		produced, err := locked(l, watermillmw.FailOpen())(func(msg *message.Message) ([]*message.Message, error) {
			unlocked = core.Unlocked(msg.Context())
			return nil, nil
		})(order())
		if err != nil || produced != nil || !unlocked {
			t.Errorf("got %v, unlocked %v", err, unlocked)
		}
		down(false)
		time.Sleep(time.Minute)
		hold(t, l, "order:1")
		msg := order()
		produced, err = locked(l, watermillmw.FailOpen())(mustNotRun(t))(msg)
		postponed(t, "busy", msg, produced, err)
	})

	sim(t, "context done before it began", func(t *testing.T) {
		l := memLocker(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		msg, began := under(ctx, order()), time.Now()
		produced, err := locked(l)(mustNotRun(t))(msg)
		postponed(t, "canceled", msg, produced, err)
		if took := time.Since(began); took != 0 {
			t.Errorf("got a pause of %v, want none", took)
		}
	})
}

type ctxKey struct{}

// TestProduced_Contexts checks the contexts of produced messages, which publishers use.
// The router calls publishers after the release, so these contexts must not be done by
// then.
func TestProduced_Contexts(t *testing.T) {
	t.Parallel()
	l := memLocker(t)
	mws := map[string]message.HandlerMiddleware{
		"Lock":                   locked(l),
		"Idempotent":             paid(newOnce(t, l)),
		"Idempotent around Lock": func(h message.HandlerFunc) message.HandlerFunc { return paid(newOnce(t, memLocker(t)))(locked(l)(h)) },
	}
	for name, mw := range mws {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "outer"))
			defer cancel()
			msg := under(ctx, order())
			other := under(context.WithValue(context.Background(), ctxKey{}, "other"), message.NewMessage("other", nil))
			produced, err := mw(func(msg *message.Message) ([]*message.Message, error) {
				out := under(context.WithValue(msg.Context(), ctxKey{}, "inner"), message.NewMessage("out", nil))
				return []*message.Message{out, other, msg}, nil
			})(msg)
			if err != nil || len(produced) != 3 {
				t.Fatalf("got %d messages and %v", len(produced), err)
			}
			for i, want := range []string{"inner", "other", "outer"} {
				if got := produced[i].Context().Value(ctxKey{}); produced[i].Context().Err() != nil || got != want {
					t.Errorf("message %d: got the value %v and %v, want %q", i, got, produced[i].Context().Err(), want)
				}
			}
			cancel()
			if produced[0].Context().Err() == nil {
				t.Error("got a context that is not done after the message's own")
			}
		})
	}
}
