package watermillmw_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

// producing is a handler. It counts its runs, and produces a message in each run.
func (c *counter) producing(msg *message.Message) ([]*message.Message, error) {
	out := message.NewMessage(fmt.Sprint("out-", c.runs.Add(1)), append([]byte("done "), msg.Payload...))
	out.Metadata.Set("to", "ledger")
	return []*message.Message{out}, nil
}

// TestIdempotent_ChangedMessage checks that a handler may change its message, and produce
// it. A copy of that message, which some subscribers deliver again, is the same call.
func TestIdempotent_ChangedMessage(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]watermillmw.KeyFunc{"by UUID": watermillmw.UUID(), "a field": watermillmw.Payload("id"), "metadata key": watermillmw.Metadata("key")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, runs := memLocker(t), 0
			handler := watermillmw.Idempotent(newOnce(t, l), "pay", key)(func(msg *message.Message) ([]*message.Message, error) {
				runs++
				copy(msg.Payload, `{"id":7}`)
				msg.Payload = append(msg.Payload, " receipt"...)
				msg.Metadata.Set("key", "7")
				msg.UUID = "uuid-7"
				return []*message.Message{msg}, nil
			})
			msg := order("key", "1")
			shared := msg.Payload
			for i := range 3 {
				produced, err := handler(msg)
				if err != nil || runs != 1 || len(produced) != 1 || string(produced[0].Payload) != `{"id":7} receipt` || produced[0].Metadata.Get("key") != "7" {
					t.Fatalf("delivery %d: got %v, %v after %d runs", i+1, produced, err, runs)
				}
				if string(msg.Payload) != `{"id":1}` || msg.UUID != "uuid-1" || msg.Metadata.Get("key") != "1" {
					t.Errorf("delivery %d: the message became %s %v", i+1, msg.Payload, msg.Metadata)
				}
				if err := produced[0].Context().Err(); err != nil {
					t.Errorf("delivery %d: the context is done: %v", i+1, err)
				}
				msg = under(context.Background(), msg.Copy())
			}
			if string(shared) != `{"id":1}` {
				t.Errorf("the payload that a broker shares became %s", shared)
			}
		})
	}
}

// TestIdempotent checks duplicates of messages that have succeeded, failed or died
// midway (hazard 75).
func TestIdempotent(t *testing.T) {
	t.Parallel()

	t.Run("publishes the same again", func(t *testing.T) {
		t.Parallel()
		l, c := memLocker(t), &counter{}
		var first *message.Message
		for i := range 3 {
			msg := order("trace", fmt.Sprint(i))
			produced, err := paid(newOnce(t, l))(c.producing)(msg)
			if err != nil || len(produced) != 1 || isNacked(msg) {
				t.Fatalf("delivery %d: got %v and %v", i+1, produced, err)
			}
			if first == nil {
				first = produced[0]
			}
			if !produced[0].Equals(first) || produced[0].UUID != "out-1" {
				t.Errorf("delivery %d: got %+v, want %+v", i+1, produced[0], first)
			}
		}
		if n := c.runs.Load(); n != 1 {
			t.Errorf("got %d runs, want 1", n)
		}
	})

	t.Run("runs again after an error", func(t *testing.T) {
		t.Parallel()
		l, own := memLocker(t), errors.New("own")
		for i := 1; i <= 3; i++ {
			msg := order()
			_, err := paid(newOnce(t, l))(func(msg *message.Message) ([]*message.Message, error) {
				if n, _ := once.AttemptFromContext(msg.Context()); n != i {
					t.Errorf("got attempt %d, want %d", n, i)
				}
				return []*message.Message{order()}, own
			})(msg)
			if !errors.Is(err, own) || isNacked(msg) {
				t.Errorf("got %v, nacked %v; want what the handler returns", err, isNacked(msg))
			}
		}
	})

	// The handler itself nacks the message, so that the broker delivers the message
	// again.
	t.Run("runs again after a nack", func(t *testing.T) {
		t.Parallel()
		l, c := memLocker(t), &counter{}
		for range 3 {
			msg := order()
			_, err := paid(newOnce(t, l, once.AtMostOnce()))(func(msg *message.Message) ([]*message.Message, error) {
				msg.Nack()
				return c.handle(msg)
			})(msg)
			if err != nil || !isNacked(msg) {
				t.Errorf("got %v, nacked %v", err, isNacked(msg))
			}
		}
		if n := c.runs.Load(); n != 3 {
			t.Errorf("got %d runs, want 3", n)
		}
	})

	t.Run("another payload under the key", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		if _, err := paid(newOnce(t, l))((&counter{}).handle)(order()); err != nil {
			t.Fatal(err)
		}
		msg := delivered("uuid-1", `{"id":2}`)
		if _, err := paid(newOnce(t, l))(mustNotRun(t))(msg); !errors.Is(err, once.ErrMismatch) || isNacked(msg) {
			t.Errorf("got %v, nacked %v; want %v", err, isNacked(msg), once.ErrMismatch)
		}
	})

	t.Run("the same fingerprint", func(t *testing.T) {
		t.Parallel()
		l, c := memLocker(t), &counter{}
		mw := paid(newOnce(t, l), watermillmw.Fingerprint(watermillmw.Payload("id")))
		for _, payload := range []string{`{"id":1,"trace":"a"}`, `{"trace":"b","id":1}`} {
			if _, err := mw(c.handle)(delivered("uuid-1", payload)); err != nil {
				t.Error(err)
			}
		}
		if _, err := mw(mustNotRun(t))(delivered("uuid-1", `{}`)); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("without a fingerprint: got %v, want %v", err, core.ErrInvalid)
		}
		if n := c.runs.Load(); n != 1 {
			t.Errorf("got %d runs, want 1", n)
		}
	})

	t.Run("died midway with AtMostOnce", func(t *testing.T) {
		t.Parallel()
		for name, end := range map[string]func(cancel func()) error{
			"deadline exceeded": func(func()) error { return context.DeadlineExceeded },
			"context done": func(cancel func()) error {
				cancel()
				return errors.New("no connection")
			},
		} {
			l := memLocker(t)
			ctx, cancel := context.WithCancel(t.Context())
			if _, err := paid(newOnce(t, l, once.AtMostOnce()))(func(*message.Message) ([]*message.Message, error) {
				return nil, end(cancel)
			})(under(ctx, order())); err == nil {
				t.Errorf("%s: got no error", name)
			}
			msg := order()
			if _, err := paid(newOnce(t, l, once.AtMostOnce()))(mustNotRun(t))(msg); !errors.Is(err, once.ErrIndeterminate) || isNacked(msg) {
				t.Errorf("%s: got %v, nacked %v; want %v", name, err, isNacked(msg), once.ErrIndeterminate)
			}
			cancel()
		}
	})

	t.Run("not final", func(t *testing.T) {
		t.Parallel()
		outer, inner, c := memLocker(t), memLocker(t), &counter{}
		both := paid(newOnce(t, outer))(watermillmw.Idempotent(newOnce(t, inner), "mail", watermillmw.UUID())(
			func(msg *message.Message) ([]*message.Message, error) {
				once.NotFinal(msg.Context())
				return c.producing(msg)
			}))
		for i := range 3 {
			if produced, err := both(order()); err != nil || len(produced) != 1 || c.runs.Load() != int32(i+1) {
				t.Errorf("got %d messages and %v after %d runs, want 1 after %d", len(produced), err, c.runs.Load(), i+1)
			}
		}
	})

	t.Run("store unavailable at the end", func(t *testing.T) {
		t.Parallel()
		sim(t, "result stands", func(t *testing.T) {
			l, down := outage(t)
			msg, c := order(), &counter{}
			produced, err := paid(newOnce(t, l))(func(msg *message.Message) ([]*message.Message, error) {
				down(true)
				return c.producing(msg)
			})(msg)
			if err != nil || len(produced) != 1 || isNacked(msg) {
				t.Errorf("got %v, %v, nacked %v; want what the handler returns", produced, err, isNacked(msg))
			}
		})
	})

	t.Run("more than is stored", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		large := message.NewMessage("large", make([]byte, watermillmw.MaxProduced))
		produced, err := paid(newOnce(t, l))(func(*message.Message) ([]*message.Message, error) {
			return []*message.Message{large}, nil
		})(order())
		if err != nil || len(produced) != 1 || produced[0] != large {
			t.Fatalf("got %d messages and %v, want the handler's", len(produced), err)
		}
		msg := order()
		if produced, err := paid(newOnce(t, l))(mustNotRun(t))(msg); !errors.Is(err, once.ErrUnreplayable) || produced != nil || isNacked(msg) {
			t.Errorf("again: got %d messages, %v, nacked %v; want %v", len(produced), err, isNacked(msg), once.ErrUnreplayable)
		}
	})

	t.Run("record of a later version", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		call, err := watermillmw.CallOf("pay", watermillmw.UUID(), order())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newOnce(t, l).Do(t.Context(), call, func(context.Context) (once.Answer, error) {
			return once.Answer{Value: []byte("\x02new")}, nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := paid(newOnce(t, l))(mustNotRun(t))(order()); !errors.Is(err, core.ErrUnsupported) {
			t.Errorf("got %v, want %v", err, core.ErrUnsupported)
		}
	})
}

// TestIdempotent_PostponedInside checks that a postponement by an inner Lock does not
// count as an attempt or a success.
func TestIdempotent_PostponedInside(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]once.Option{"usual": nil, "AtMostOnce": {once.AtMostOnce()}} {
		sim(t, name, func(t *testing.T) {
			l := memLocker(t)
			release := hold(t, l, "order:1")
			outer := watermillmw.Idempotent(newOnce(t, l, opts...), "outer", watermillmw.UUID())
			attempt := 0
			for _, policy := range []watermillmw.Busy{watermillmw.Reschedule, watermillmw.Fail} {
				msg := order()
				produced, err := outer(paid(newOnce(t, l, opts...))(locked(l, watermillmw.OnBusy(policy))(mustNotRun(t))))(msg)
				if policy == watermillmw.Reschedule {
					postponed(t, "inside", msg, produced, err)
				} else if !errors.Is(err, core.ErrBusy) {
					t.Errorf("got %v, want %v", err, core.ErrBusy)
				}
			}
			release()
			if _, err := outer(paid(newOnce(t, l, opts...))(locked(l)(func(msg *message.Message) ([]*message.Message, error) {
				attempt, _ = once.AttemptFromContext(msg.Context())
				return nil, nil
			})))(order()); err != nil || attempt != 1 {
				t.Errorf("got attempt %d and %v, want 1", attempt, err)
			}
		})
	}
}

// TestIdempotent_Overlap checks that a delivery during a run waits for the run and
// publishes the run's messages.
func TestIdempotent_Overlap(t *testing.T) {
	t.Parallel()
	sim(t, "waits for the run", func(t *testing.T) {
		l, c := memLocker(t), &counter{}
		results := make(chan []*message.Message, 2)
		for range 2 {
			go func() {
				produced, err := paid(newOnce(t, l))(func(msg *message.Message) ([]*message.Message, error) {
					time.Sleep(3 * time.Second)
					return c.producing(msg)
				})(order())
				if err != nil {
					t.Error(err)
				}
				results <- produced
			}()
		}
		for range 2 {
			if produced := <-results; len(produced) != 1 || produced[0].UUID != "out-1" {
				t.Errorf("got %+v, want the message out-1", produced)
			}
		}
		if n := c.runs.Load(); n != 1 {
			t.Errorf("got %d runs, want 1", n)
		}
	})
}

func attempt(msg *message.Message) int {
	n, _ := once.AttemptFromContext(msg.Context())
	return n
}
