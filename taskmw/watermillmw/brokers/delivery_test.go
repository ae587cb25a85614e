package brokers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

// scenes runs every scene on a broker, each with separate topics.
func scenes(t *testing.T, b broker) {
	t.Helper()
	for name, scene := range map[string]func(t *testing.T, b broker){
		"BusyMessages": busyMessages, "Redelivery": redelivered, "PublishFails": publishFails,
	} {
		b.scene = name + "-"
		own := b
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scene(t, own)
		})
	}
}

func newLocker(t *testing.T) *core.Locker {
	t.Helper()
	l, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// locked returns a Lock with a short wait.
func locked(l *core.Locker) message.HandlerMiddleware {
	return watermillmw.Lock(l, "order", watermillmw.Payload("id"), watermillmw.Acquire(core.Wait(10*time.Millisecond)))
}

func paid(t *testing.T, l *core.Locker) message.HandlerMiddleware {
	t.Helper()
	o, err := once.New(l, once.Acquire(core.Wait(10*time.Millisecond)))
	if err != nil {
		t.Fatal(err)
	}
	return watermillmw.Idempotent(o, "pay", watermillmw.UUID())
}

// producing returns a handler that counts its runs and produces a message in each run.
func producing(runs *atomic.Int32) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		runs.Add(1)
		out := message.NewMessage("of-"+msg.UUID, msg.Payload)
		out.Metadata.Set("to", "ledger")
		out.SetContext(msg.Context())
		return []*message.Message{out}, nil
	}
}

// busyMessages checks that busy messages are delivered repeatedly (hazard 76). While
// they are busy, none of them runs. Later all of them run, and none is put into the
// poison queue.
func busyMessages(t *testing.T, b broker) {
	const messages = 3
	l := newLocker(t)
	done, poison := b.collect(t, "done"), b.collect(t, "poison")
	poisonQueue, err := middleware.PoisonQueue(b.publisher(t), b.scene+"poison")
	if err != nil {
		t.Fatal(err)
	}
	retry := middleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}
	lease, err := l.Acquire(t.Context(), "order:1")
	if err != nil {
		t.Fatal(err)
	}
	var deliveries, runs atomic.Int32
	for range 2 {
		b.serve(t, nil, producing(&runs), counted(&deliveries), poisonQueue, retry.Middleware, locked(l))
	}
	b.publish(t, messages, `{"id":1}`)
	eventually(t, "busy messages came again", func() bool { return deliveries.Load() >= 3*messages })
	if n := runs.Load(); n != 0 {
		t.Errorf("got %d runs while the key was taken", n)
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "each has run", func() bool { return len(done.uuids()) == messages })
	if poisoned := poison.copy(); len(poisoned) != 0 {
		t.Errorf("got %d messages in the poison queue, want none", len(poisoned))
	}
	tally.Note(t, tally.Facts{
		Part: "adapters", Runs: messages, Faults: map[string]int{"busy deliveries": int(deliveries.Load()) - messages},
		Violations: map[string]int{"busy messages in the poison queue": len(poison.copy())},
	})
}

// redelivered checks a message that the broker delivers again while the handler still
// runs (hazard 61). The message has to run once, and the messages of the run have to be
// published. The second delivery comes after a time-out, or because the consumer is
// gone, and can go to another process.
func redelivered(t *testing.T, b broker) {
	l := newLocker(t)
	done := b.collect(t, "done")
	var deliveries, runs atomic.Int32
	hold := make(chan struct{})
	end := sync.OnceFunc(func() { close(hold) })
	defer end() // otherwise the router would wait for its handler
	slow := func(msg *message.Message) ([]*message.Message, error) {
		produced, err := producing(&runs)(msg)
		<-hold
		return produced, err
	}
	var services []*service
	for range 2 {
		services = append(services, b.serve(t, nil, slow, counted(&deliveries), paid(t, l)))
	}
	b.publish(t, 1, `{"id":1}`)
	eventually(t, "the handler runs", func() bool { return runs.Load() == 1 })
	if !b.timeout {
		for _, s := range services {
			if err := s.sub.Close(); err != nil {
				t.Error(err)
			}
		}
		b.serve(t, nil, slow, counted(&deliveries), paid(t, l))
	}
	eventually(t, "the message came again", func() bool { return deliveries.Load() >= 2 })
	if n := runs.Load(); n != 1 {
		t.Errorf("got %d runs, want 1", n)
	}
	end()
	eventually(t, "its message is published", func() bool { return len(done.copy()) > 0 })
	for _, msg := range done.copy() {
		if msg.UUID != "of-order-0" || string(msg.Payload) != `{"id":1}` || msg.Metadata.Get("to") != "ledger" {
			t.Errorf("got %+v, want what the run has produced", msg)
		}
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("got %d runs, want 1", n)
	}
	tally.Note(t, tally.Facts{
		Part: "adapters", Runs: 1, Faults: map[string]int{"deliveries during a run": int(deliveries.Load()) - 1},
		Violations: map[string]int{"second runs of a message": int(runs.Load()) - 1},
	})
}

// publishFails checks that the messages of a run are published even if the first tries to
// publish fail (hazard 75).
func publishFails(t *testing.T, b broker) {
	l := newLocker(t)
	done := b.collect(t, "done")
	var deliveries, runs atomic.Int32
	failing := &failing{Publisher: b.publisher(t)}
	b.serve(t, failing, producing(&runs), counted(&deliveries), locked(l), paid(t, l))
	b.publish(t, 1, `{"id":1}`)
	eventually(t, "its message is published", func() bool { return len(done.copy()) > 0 })
	got := done.copy()[0]
	if got.UUID != "of-order-0" || string(got.Payload) != `{"id":1}` || got.Metadata.Get("to") != "ledger" {
		t.Errorf("got %+v, want what the run has produced", got)
	}
	if n, d := runs.Load(), deliveries.Load(); n != 1 || d < 3 {
		t.Errorf("got %d runs in %d deliveries, want 1 in 3", n, d)
	}
}

// failing is a publisher whose first two calls fail.
type failing struct {
	message.Publisher
	calls atomic.Int32
}

func (f *failing) Publish(topic string, msgs ...*message.Message) error {
	if f.calls.Add(1) <= 2 {
		return errors.New("no connection to the broker")
	}
	return f.Publisher.Publish(topic, msgs...)
}
