package brokers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	natsclient "github.com/nats-io/nats.go"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

// inMemory returns a broker in this process. It delivers a nacked message again at once.
func inMemory() broker {
	p := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	return broker{
		publisher:  func(*testing.T) message.Publisher { return p },
		subscriber: func(*testing.T) message.Subscriber { return p },
	}
}

// TestMiddlewares checks README.md's statements about Deduplicator, InstantAck and an
// outer Timeout, with a message whose key is busy at first.
func TestMiddlewares(t *testing.T) {
	t.Parallel()
	deduplicator := func() message.HandlerMiddleware { return (&middleware.Deduplicator{}).Middleware }
	for name, c := range map[string]struct {
		mw         func() message.HandlerMiddleware
		outer      bool
		deliveries int32 // the number of deliveries before the key is free
		runs       int32 // the number of runs after the key is free
		poisoned   int
	}{
		"Deduplicator outside drops it": {mw: deduplicator, outer: true, deliveries: 2},
		"Deduplicator inside":           {mw: deduplicator, deliveries: 2, runs: 1},
		"InstantAck outside fails it":   {mw: func() message.HandlerMiddleware { return middleware.InstantAck }, outer: true, deliveries: 1, poisoned: 1},
		"InstantAck inside":             {mw: func() message.HandlerMiddleware { return middleware.InstantAck }, deliveries: 2, runs: 1},
		"Timeout outside":               {mw: func() message.HandlerMiddleware { return middleware.Timeout(soon) }, outer: true, deliveries: 2, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := inMemory(), newLocker(t)
			poison := b.collect(t, "poison")
			poisonQueue, err := middleware.PoisonQueue(b.publisher(t), "poison")
			if err != nil {
				t.Fatal(err)
			}
			lease, err := l.Acquire(t.Context(), "order:1")
			if err != nil {
				t.Fatal(err)
			}
			var deliveries, runs atomic.Int32
			mws := []message.HandlerMiddleware{counted(&deliveries), poisonQueue, locked(l), c.mw()}
			if c.outer {
				mws[2], mws[3] = mws[3], mws[2]
			}
			s := b.serve(t, nil, producing(&runs), mws...)
			b.publish(t, 1, `{"id":1}`)
			eventually(t, "the message came", func() bool { return deliveries.Load() >= c.deliveries && len(poison.copy()) == c.poisoned })
			if n := runs.Load(); n != 0 {
				t.Errorf("got %d runs while the key was taken", n)
			}
			if err := lease.Release(context.Background()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it has run", func() bool { return runs.Load() >= c.runs })
			s.end()
			if n := runs.Load(); n != c.runs || len(poison.copy()) != c.poisoned {
				t.Errorf("got %d runs and %d poisoned, want %d and %d", n, len(poison.copy()), c.runs, c.poisoned)
			}
		})
	}
}

// TestTimeoutInsideRetry checks a Retry outside Timeout. The Retry makes its second try
// with a context that is done. The message is nacked in this try, and the next delivery
// runs.
func TestTimeoutInsideRetry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit      []message.HandlerMiddleware
		deliveries int32
	}{"without Timeout": {nil, 1}, "with Timeout": {[]message.HandlerMiddleware{middleware.Timeout(soon)}, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := inMemory(), newLocker(t)
			var deliveries, runs atomic.Int32
			fails := func(*message.Message) ([]*message.Message, error) {
				if runs.Add(1) == 1 {
					return nil, errors.New("no connection")
				}
				return nil, nil
			}
			retry := middleware.Retry{MaxRetries: 3, InitialInterval: time.Millisecond}
			mws := append([]message.HandlerMiddleware{counted(&deliveries), retry.Middleware}, c.limit...)
			s := b.serve(t, nil, fails, append(mws, locked(l))...)
			b.publish(t, 1, `{"id":1}`)
			eventually(t, "it has run", func() bool { return runs.Load() == 2 })
			s.end()
			if n := deliveries.Load(); n != c.deliveries || runs.Load() != 2 {
				t.Errorf("got %d deliveries and %d runs, want %d and 2", n, runs.Load(), c.deliveries)
			}
		})
	}
}

// TestJetStream_OneDelivery checks that JetStream does not deliver a busy message a
// second time during its wait.
func TestJetStream_OneDelivery(t *testing.T) {
	t.Parallel()
	b, _ := jetStream(t, 10*time.Second, natsclient.ManualAck())
	l := newLocker(t)
	lease, err := l.Acquire(t.Context(), "order:1")
	if err != nil {
		t.Fatal(err)
	}
	var deliveries, runs atomic.Int32
	s := b.serve(t, nil, producing(&runs), counted(&deliveries), watermillmw.Lock(l, "order", watermillmw.Payload("id")))
	b.publish(t, 1, `{"id":1}`)
	eventually(t, "it is delivered", func() bool { return deliveries.Load() == 1 })
	time.Sleep(3 * time.Second)
	if err := lease.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has run", func() bool { return runs.Load() == 1 })
	s.end()
	if d, n := deliveries.Load(), runs.Load(); d != 1 || n != 1 {
		t.Errorf("got %d deliveries and %d runs, want one", d, n)
	}
}

// TestJetStream_ManualAck checks a message that the subscriber gives up during its wait
// for a key. Without ManualAck the client acks the message. The message is lost, and
// has not run.
func TestJetStream_ManualAck(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts []natsclient.SubOpt
		lost bool
	}{
		"with ManualAck": {[]natsclient.SubOpt{natsclient.ManualAck()}, false},
		// The server must not deliver the message again before the client acks it.
		"without ManualAck": {[]natsclient.SubOpt{natsclient.AckWait(time.Hour)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, url := jetStream(t, redelivery, c.opts...)
			l := newLocker(t)
			lease, err := l.Acquire(t.Context(), "order:1")
			if err != nil {
				t.Fatal(err)
			}
			var deliveries, runs atomic.Int32
			b.serve(t, nil, producing(&runs), counted(&deliveries), watermillmw.Lock(l, "order", watermillmw.Payload("id"), watermillmw.Acquire(core.Wait(2*redelivery))))
			b.publish(t, 1, `{"id":1}`)
			conn, err := natsclient.Connect(url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			js, err := conn.JetStream()
			if err != nil {
				t.Fatal(err)
			}
			left := func() int {
				info, err := js.ConsumerInfo("orders", "service-orders")
				if err != nil {
					t.Fatal(err)
				}
				return int(info.NumPending) + info.NumAckPending
			}
			eventually(t, "the message was given up once", func() bool {
				return deliveries.Load() >= 2 || deliveries.Load() == 1 && c.lost && left() == 0
			})
			if n := left(); (n == 0) != c.lost {
				t.Errorf("got %d messages left, want lost: %v", n, c.lost)
			}
			if n := runs.Load(); n != 0 {
				t.Errorf("got %d runs while the key was taken", n)
			}
			if err := lease.Release(context.Background()); err != nil {
				t.Error(err)
			}
			if !c.lost {
				eventually(t, "it has run", func() bool { return runs.Load() >= 1 })
			}
		})
	}
}

// TestJetStream_MaxDeliver checks that a nack of a busy message counts for MaxDeliver,
// after which JetStream drops the message. With OnBusy(Fail) and an outer Retry the
// message is delivered once.
func TestJetStream_MaxDeliver(t *testing.T) {
	t.Parallel()
	retry := middleware.Retry{MaxRetries: 1 << 20, InitialInterval: 10 * time.Millisecond, MaxInterval: 10 * time.Millisecond}
	for name, c := range map[string]struct {
		policy     watermillmw.Busy
		outer      message.HandlerMiddleware
		deliveries int32
		runs       int32 // of the busy message
	}{
		"Reschedule":     {watermillmw.Reschedule, func(h message.HandlerFunc) message.HandlerFunc { return h }, 2, 0},
		"Fail and Retry": {watermillmw.Fail, retry.Middleware, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := jetStream(t, soon, natsclient.ManualAck(), natsclient.MaxDeliver(2))
			l := newLocker(t)
			lease, err := l.Acquire(t.Context(), "order:1")
			if err != nil {
				t.Fatal(err)
			}
			var deliveries, tries, busy, other atomic.Int32
			h := func(msg *message.Message) ([]*message.Message, error) {
				if string(msg.Payload) == `{"id":1}` {
					busy.Add(1)
				} else {
					other.Add(1)
				}
				return nil, nil
			}
			tried := func(h message.HandlerFunc) message.HandlerFunc {
				return func(msg *message.Message) ([]*message.Message, error) {
					defer tries.Add(1)
					return h(msg)
				}
			}
			b.serve(t, nil, h, counted(&deliveries), c.outer, tried,
				watermillmw.Lock(l, "order", watermillmw.Payload("id"), watermillmw.Acquire(core.Wait(10*time.Millisecond)), watermillmw.OnBusy(c.policy)))
			b.publish(t, 1, `{"id":1}`)
			eventually(t, "it was tried twice", func() bool { return tries.Load() >= 2 })
			if err := lease.Release(context.Background()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it has run", func() bool { return busy.Load() == c.runs })
			b.publish(t, 1, `{"id":2}`)
			eventually(t, "the next message has run", func() bool { return other.Load() == 1 })
			if d, n := deliveries.Load(), busy.Load(); d != c.deliveries+1 || n != c.runs {
				t.Errorf("got %d deliveries and %d runs of the busy message, want %d and %d", d-1, n, c.deliveries, c.runs)
			}
		})
	}
}

// TestRedisStreams_Order checks that Redis streams deliver a nacked message again before
// all other messages.
func TestRedisStreams_Order(t *testing.T) {
	t.Parallel()
	b, l := redisStreams(t, time.Minute), newLocker(t)
	lease, err := l.Acquire(t.Context(), "order:order-0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var delivered []string
	noted := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			mu.Lock()
			delivered = append(delivered, msg.UUID)
			mu.Unlock()
			return h(msg)
		}
	}
	seen := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(delivered)
	}
	var runs atomic.Int32
	ran := func(*message.Message) ([]*message.Message, error) { // publishes nothing
		runs.Add(1)
		return nil, nil
	}
	b.serve(t, nil, ran, noted,
		watermillmw.Lock(l, "order", watermillmw.UUID(), watermillmw.Acquire(core.Wait(10*time.Millisecond))))
	b.publish(t, 3, `{"id":1}`)
	eventually(t, "the first one came three times", func() bool { return len(seen()) >= 3 })
	if err := lease.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all have run", func() bool { return runs.Load() >= 3 })
	if got := slices.Compact(seen()); !slices.Equal(got, []string{"order-0", "order-1", "order-2"}) {
		t.Errorf("got the deliveries %q, want each message until it has run", got)
	}
}
