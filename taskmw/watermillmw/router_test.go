package watermillmw_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

// quick sets a short wait, after which a busy message is postponed.
var quick = watermillmw.Acquire(core.Wait(10 * time.Millisecond))

// rig is a router with a broker in memory. Its handlers read from the topic orders and
// publish to the topic done.
type rig struct {
	t      *testing.T
	pubsub *gochannel.GoChannel
	router *message.Router

	done, poison list
	deliveries   atomic.Int32
}

func newRig(t *testing.T) *rig {
	t.Helper()
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, pubsub: pubsub, router: router}
	for topic, l := range map[string]*list{"done": &r.done, "poison": &r.poison} {
		router.AddNoPublisherHandler(topic, topic, pubsub, func(msg *message.Message) error {
			l.add(msg.Copy())
			return nil
		})
	}
	return r
}

func (r *rig) poisonQueue() message.HandlerMiddleware {
	mw, err := middleware.PoisonQueue(r.pubsub, "poison")
	if err != nil {
		r.t.Fatal(err)
	}
	return mw
}

func retry() message.HandlerMiddleware {
	return middleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond, Multiplier: 1}.Middleware
}

func (r *rig) counted(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		r.deliveries.Add(1)
		return h(msg)
	}
}

// run makes the router run a handler for orders, with the outermost middleware first.
func (r *rig) run(h message.HandlerFunc, mws ...message.HandlerMiddleware) {
	r.t.Helper()
	r.router.AddHandler("pay", "orders", r.pubsub, "done", r.pubsub, h).AddMiddleware(append([]message.HandlerMiddleware{r.counted}, mws...)...)
	r.start()
}

func (r *rig) start() {
	r.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- r.router.Run(context.Background()) }()
	r.t.Cleanup(func() {
		if err := errors.Join(r.router.Close(), <-ended); err != nil {
			r.t.Error(err)
		}
	})
	<-r.router.Running()
}

func (r *rig) publish(msgs ...*message.Message) {
	r.t.Helper()
	if err := r.pubsub.Publish("orders", msgs...); err != nil {
		r.t.Fatal(err)
	}
}

// TestRouter_BusyCopy checks a middleware between an Idempotent and a Lock that copies
// the message with its context. A busy message is not lost.
func TestRouter_BusyCopy(t *testing.T) {
	t.Parallel()
	r, l := newRig(t), memLocker(t)
	release := hold(t, l, "order:1")
	runs := counter{}
	copies := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			c := msg.Copy()
			c.SetContext(msg.Context())
			return next(c)
		}
	}
	r.run(runs.producing, paid(newOnce(t, l)), copies, locked(l, quick))
	r.publish(message.NewMessage("u", []byte(`{"id":1}`)))
	eventually(t, "it is delivered again", func() bool { return r.deliveries.Load() > 2 })
	release()
	eventually(t, "it runs", func() bool { return runs.runs.Load() == 1 })
}

// TestRouter_BusyMessages checks that busy messages are delivered again until they run
// (hazard 76). Each message runs once, and none is put into the poison queue. Retry and
// PoisonQueue are tested as outer and as inner middlewares.
func TestRouter_BusyMessages(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"outer", "inner"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			const messages = 5
			r, l := newRig(t), memLocker(t)
			release := hold(t, l, "order:1")
			runs := counter{}
			mws := []message.HandlerMiddleware{r.poisonQueue(), retry(), locked(l, quick)}
			if place == "inner" {
				mws = []message.HandlerMiddleware{locked(l, quick), r.poisonQueue(), retry()}
			}
			r.run(runs.producing, mws...)
			for i := range messages {
				r.publish(message.NewMessage(fmt.Sprint("u", i), []byte(`{"id":1}`)))
			}
			eventually(t, "each message was delivered twice", func() bool { return r.deliveries.Load() >= 2*messages })
			if n := runs.runs.Load(); n != 0 {
				t.Errorf("got %d runs while the key was taken", n)
			}
			release()
			eventually(t, "all are done", func() bool { return len(r.done.copy()) == messages })
			if n := runs.runs.Load(); n != messages {
				t.Errorf("got %d runs, want %d", n, messages)
			}
			if poisoned := r.poison.copy(); len(poisoned) != 0 {
				t.Errorf("got %d messages in the poison queue, want none", len(poisoned))
			}
		})
	}
}

// TestRouter_Failures checks that Retry and PoisonQueue handle failed messages.
func TestRouter_Failures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outer  bool   // Retry and PoisonQueue are outer middlewares
		msg    string // the payload of the message
		runs   int32
		reason string // the reason in the poison queue
	}{
		"outer and handler fails": {true, `{"id":1}`, 4, "no connection"},
		"inner and handler fails": {false, `{"id":1}`, 4, "no connection"},
		"outer without key":       {true, `{"no":"secret"}`, 0, `watermillmw order: the payload field "id" is missing`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, l := newRig(t), memLocker(t)
			theirs := []message.HandlerMiddleware{r.poisonQueue(), retry()}
			ours := []message.HandlerMiddleware{locked(l), paid(newOnce(t, l))}
			mws := append(slices.Clone(theirs), ours...)
			if !c.outer {
				mws = append(slices.Clone(ours), theirs...)
			}
			runs := counter{}
			r.run(func(msg *message.Message) ([]*message.Message, error) {
				if err := msg.Context().Err(); err != nil {
					t.Errorf("got a context that is done: %v", err)
				}
				_, _ = runs.handle(msg)
				return nil, errors.New("no connection")
			}, mws...)
			r.publish(message.NewMessage("u", []byte(c.msg)))
			eventually(t, "the message is in the poison queue", func() bool { return len(r.poison.copy()) == 1 })
			got := r.poison.copy()[0].Metadata.Get(middleware.ReasonForPoisonedKey)
			if n := runs.runs.Load(); n != c.runs || got != c.reason {
				t.Errorf("got %d runs and %q, want %d and %q", n, got, c.runs, c.reason)
			}
		})
	}
}

// TestRouter_RetryAttempts checks that each try of an outer Retry is an attempt, and
// that all tries of an inner Retry are one attempt.
func TestRouter_RetryAttempts(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"outer": "[1 2 3]", "inner": "[1 1 1]"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, l := newRig(t), memLocker(t)
			mws := []message.HandlerMiddleware{retry(), paid(newOnce(t, l))}
			if name == "inner" {
				slices.Reverse(mws)
			}
			var attempts []int
			r.run(func(msg *message.Message) ([]*message.Message, error) {
				attempts = append(attempts, attempt(msg))
				if len(attempts) < 3 {
					return nil, errors.New("no connection")
				}
				return []*message.Message{message.NewMessage("out", nil)}, nil
			}, mws...)
			r.publish(order())
			eventually(t, "it is done", func() bool { return len(r.done.copy()) == 1 })
			if got := fmt.Sprint(attempts); got != want || len(r.poison.copy()) != 0 {
				t.Errorf("got the attempts %s, want %s", got, want)
			}
		})
	}
}

// TestRouter_PublishFails checks that the messages of a run are published even if the
// first tries to publish fail (hazard 75).
func TestRouter_PublishFails(t *testing.T) {
	t.Parallel()
	r, l, runs := newRig(t), memLocker(t), counter{}
	fails := failing{r.pubsub, new(atomic.Int32)}
	r.router.AddHandler("pay", "orders", r.pubsub, "done", fails, runs.producing).AddMiddleware(r.counted, locked(l), paid(newOnce(t, l)))
	r.start()
	r.publish(order())
	eventually(t, "it is published", func() bool { return len(r.done.copy()) > 0 })
	done := r.done.copy()
	if len(done) != 1 || done[0].UUID != "out-1" || string(done[0].Payload) != `done {"id":1}` || done[0].Metadata.Get("to") != "ledger" {
		t.Errorf("got %+v, want the messages of the first run", done)
	}
	if n, d := runs.runs.Load(), r.deliveries.Load(); n != 1 || d != 3 {
		t.Errorf("got %d runs in %d deliveries, want 1 in 3", n, d)
	}
}

// failing is a publisher whose first two calls fail.
type failing struct {
	message.Publisher
	calls *atomic.Int32
}

func (f failing) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		if err := msg.Context().Err(); err != nil {
			return err // like publishers that use the message's context
		}
	}
	if f.calls.Add(1) <= 2 {
		return errors.New("no connection to the broker")
	}
	return f.Publisher.Publish(topic, msgs...)
}

// TestRouter_TwoHandlersOfATopic checks that each handler of a topic runs a message
// once.
func TestRouter_TwoHandlersOfATopic(t *testing.T) {
	t.Parallel()
	r, l, runs := newRig(t), memLocker(t), counter{}
	for _, name := range []string{"mail", "ledger"} {
		r.router.AddHandler(name, "orders", r.pubsub, "done", r.pubsub, runs.producing).AddMiddleware(paid(newOnce(t, l)))
	}
	r.start()
	r.publish(order(), order())
	eventually(t, "all are acked", func() bool { return len(r.done.copy()) == 4 })
	if n := runs.runs.Load(); n != 2 {
		t.Errorf("got %d runs, want one for each handler", n)
	}
}

// TestRouter_CopyWithoutContext checks an outer middleware that calls the next handler
// with a copy without the context (hazard 76). The message is not lost. It fails and is
// delivered again. If the Idempotent has a HandlerName, the copy runs instead.
func TestRouter_CopyWithoutContext(t *testing.T) {
	t.Parallel()
	copies := func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { return next(msg.Copy()) }
	}
	t.Run("busy Lock", func(t *testing.T) {
		t.Parallel()
		r, l, runs := newRig(t), memLocker(t), counter{}
		release := hold(t, l, "order:1")
		r.run(runs.producing, copies, locked(l, quick))
		r.publish(order())
		eventually(t, "it is delivered again", func() bool { return r.deliveries.Load() > 2 })
		release()
		eventually(t, "it runs", func() bool { return runs.runs.Load() == 1 })
	})
	t.Run("Idempotent", func(t *testing.T) {
		t.Parallel()
		r, l, runs := newRig(t), memLocker(t), counter{}
		for _, name := range []string{"mail", "ledger"} {
			r.router.AddHandler(name, "orders", r.pubsub, "done", r.pubsub, runs.producing).AddMiddleware(r.poisonQueue(), copies, paid(newOnce(t, l)))
		}
		r.start()
		r.publish(order())
		eventually(t, "both are poisoned", func() bool { return len(r.poison.copy()) == 2 })
		want := "watermillmw pay: the message has no handler's name in its context"
		for _, msg := range r.poison.copy() {
			if got := msg.Metadata.Get(middleware.ReasonForPoisonedKey); !strings.HasPrefix(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		if n := runs.runs.Load(); n != 0 {
			t.Errorf("got %d runs, want 0", n)
		}
	})
	t.Run("Idempotent with HandlerName", func(t *testing.T) {
		t.Parallel()
		r, l, runs := newRig(t), memLocker(t), counter{}
		for _, name := range []string{"mail", "ledger"} {
			own := watermillmw.HandlerName("the-" + name)
			r.router.AddHandler(name, "orders", r.pubsub, "done", r.pubsub, runs.producing).AddMiddleware(copies, paid(newOnce(t, l), own))
		}
		r.start()
		r.publish(order(), order())
		eventually(t, "all are acked", func() bool { return len(r.done.copy()) == 4 })
		if n := runs.runs.Load(); n != 2 {
			t.Errorf("got %d runs, want one for each handler", n)
		}
	})
}

// TestRouter_RenamedHandler checks that a renamed handler does not run messages again
// if its HandlerName stays the same (hazard 75).
func TestRouter_RenamedHandler(t *testing.T) {
	t.Parallel()
	l, runs := memLocker(t), counter{}
	for _, name := range []string{"old", "new"} {
		r := newRig(t)
		r.router.AddHandler(name, "orders", r.pubsub, "done", r.pubsub, runs.producing).AddMiddleware(paid(newOnce(t, l), watermillmw.HandlerName("pay")))
		r.start()
		r.publish(order())
		eventually(t, "it is acked", func() bool { return len(r.done.copy()) == 1 })
	}
	if n := runs.runs.Load(); n != 1 {
		t.Errorf("got %d runs, want 1", n)
	}
}

// TestRouter_OneAtATime checks that messages of one key run one at a time in two
// routers, and that all of them run (hazard 61).
func TestRouter_OneAtATime(t *testing.T) {
	t.Parallel()
	const messages = 40
	l := memLocker(t)
	var keys [2]gauge
	var all atomic.Int32
	for range 2 {
		r := newRig(t)
		r.run(func(msg *message.Message) ([]*message.Message, error) {
			g := &keys[msg.Payload[6]-'0']
			g.enter()
			defer g.leave()
			if _, ok := core.LeaseFromContext(msg.Context()); !ok {
				t.Error("got no lease")
			}
			time.Sleep(time.Millisecond)
			all.Add(1)
			return nil, nil
		}, locked(l))
		for i := range messages {
			r.publish(message.NewMessage(fmt.Sprint(i), fmt.Appendf(nil, `{"id":%d}`, i%2)))
		}
	}
	eventually(t, "all have run", func() bool { return all.Load() >= 2*messages })
	for i := range keys {
		if n := keys[i].most.Load(); n != 1 {
			t.Errorf("got %d at once under key %d, want 1", n, i)
		}
	}
}
