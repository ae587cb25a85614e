package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Lockers without an observer log each loss
	m.Run()
}

// soon is a generous deadline for short operations on a busy machine.
const soon = 90 * time.Second

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testserver.Eventually(t, soon, what, ok)
}

// topic has one partition, so its messages have an order.
const topic = "orders"

// newBroker starts a broker with n messages for the test, and returns its addresses.
func newBroker(t *testing.T, n int) []string {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	p, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: cluster.ListenAddrs(), Marshaler: kafka.DefaultMarshaler{}}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := p.Publish(topic, message.NewMessage(fmt.Sprint("order-", i), nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return cluster.ListenAddrs()
}

// deliveries lists the UUIDs of the delivered messages, in order.
type deliveries struct {
	mu    sync.Mutex
	uuids []string
}

func (d *deliveries) note(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		d.mu.Lock()
		d.uuids = append(d.uuids, msg.UUID)
		d.mu.Unlock()
		return h(msg)
	}
}

func (d *deliveries) seen() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.uuids)
}

// serve runs a member of the group. The first of mws is the outermost middleware.
func serve(t *testing.T, brokers []string, h message.NoPublishHandlerFunc, mws ...message.HandlerMiddleware) {
	t.Helper()
	config := kafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	// The group excludes a member that still runs a message after this time.
	config.Consumer.Group.Rebalance.Timeout = time.Second
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	sub, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: brokers, ConsumerGroup: "service", Unmarshaler: kafka.DefaultMarshaler{}, OverwriteSaramaConfig: config,
	}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: soon}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddNoPublisherHandler("pay", topic, sub, h).AddMiddleware(mws...)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := errors.Join(router.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
}

func newLocker(t *testing.T, store core.Store) *core.Locker {
	t.Helper()
	l, err := core.New(store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// short sets a short wait, after which a busy message is nacked.
var short = core.Wait(10 * time.Millisecond)

// TestOrder checks that a nacked message is delivered again before all other messages
// of its partition.
func TestOrder(t *testing.T) {
	t.Parallel()
	l := newLocker(t, memstore.New())
	lease, err := l.Acquire(t.Context(), "order:order-0")
	if err != nil {
		t.Fatal(err)
	}
	var d deliveries
	var runs atomic.Int32
	serve(t, newBroker(t, 3), func(*message.Message) error {
		runs.Add(1)
		return nil
	}, d.note, watermillmw.Lock(l, "order", watermillmw.UUID(), watermillmw.Acquire(short)))
	eventually(t, "the first one came three times", func() bool { return len(d.seen()) >= 3 })
	if n := runs.Load(); n != 0 {
		t.Errorf("got %d runs while the key was taken", n)
	}
	if err := lease.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all have run", func() bool { return runs.Load() == 3 })
	if got := slices.Compact(d.seen()); !slices.Equal(got, []string{"order-0", "order-1", "order-2"}) {
		t.Errorf("got the deliveries %q, want each message until it has run", got)
	}
}

// TestRebalance checks that a message runs once, even if another member gets its
// partition and the message during the run (hazard 61).
func TestRebalance(t *testing.T) {
	t.Parallel()
	brokers, store := newBroker(t, 2), memstore.New()
	var mu sync.Mutex
	runs := map[string]int{}
	ran := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(runs)
	}
	hold := make(chan struct{})
	end := sync.OnceFunc(func() { close(hold) })
	defer end() // otherwise the router would wait for its handler
	member := func(d *deliveries) {
		o, err := once.New(newLocker(t, store), once.Acquire(short))
		if err != nil {
			t.Fatal(err)
		}
		serve(t, brokers, func(msg *message.Message) error {
			mu.Lock()
			runs[msg.UUID]++
			mu.Unlock()
			<-hold
			return nil
		}, d.note, watermillmw.Idempotent(o, "pay", watermillmw.UUID()))
	}
	var first, second deliveries
	member(&first)
	eventually(t, "the first member runs the message", func() bool { return ran() == 1 })
	member(&second)
	eventually(t, "the second member gets it", func() bool { return slices.Contains(second.seen(), "order-0") })
	if n := ran(); n != 1 {
		t.Errorf("got %d runs, want that of the first member", n)
	}
	end()
	eventually(t, "the next message has run", func() bool { return ran() == 2 })
	mu.Lock()
	defer mu.Unlock()
	if runs["order-0"] != 1 || runs["order-1"] != 1 {
		t.Errorf("got the runs %v, want one of each", runs)
	}
}
