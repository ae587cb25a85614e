package brokers

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

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/testserver"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Lockers without an observer log each loss
	m.Run()
}

// redelivery is the time after which JetStream and Redis streams deliver an unacked
// message again, unless a test sets another time.
const redelivery = time.Second

// broker is the broker of one test.
type broker struct {
	scene      string // the prefix of its topics
	publisher  func(t *testing.T) message.Publisher
	subscriber func(t *testing.T) message.Subscriber // returns the subscriber of another consumer
	// timeout reports whether the broker delivers a message again after the time
	// redelivery, while the handler still runs. Other brokers deliver a message again
	// when the consumer's connection breaks.
	timeout bool
}

func TestJetStream(t *testing.T) {
	t.Parallel()
	b, _ := jetStream(t, redelivery, natsclient.ManualAck())
	scenes(t, b)
}

func TestRabbitMQ(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	scenes(t, rabbitMQ(t))
}

func TestRedisStreams(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	scenes(t, redisStreams(t, redelivery))
}

// jetStream starts a server, and returns its broker and its URL. The subscriber gives a
// message up after wait, and the server delivers it again after wait, unless opts have
// another AckWait.
func jetStream(t *testing.T, wait time.Duration, opts ...natsclient.SubOpt) (b broker, url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(soon) {
		t.Fatal("the server does not answer")
	}
	config := nats.JetStreamConfig{
		AutoProvision: true, TrackMsgId: false, DurablePrefix: "service",
		DurableCalculator: func(prefix, topic string) string { return prefix + "-" + topic },
		// Each subscriber appends an option, so the subscribers must not share capacity.
		SubscribeOptions: slices.Clip(append([]natsclient.SubOpt{natsclient.DeliverAll(), natsclient.AckExplicit(), natsclient.AckWait(wait)}, opts...)),
	}
	return broker{
		publisher: func(t *testing.T) message.Publisher {
			p, err := nats.NewPublisher(nats.PublisherConfig{URL: s.ClientURL(), JetStream: config}, watermill.NopLogger{})
			return must(t, p, err)
		},
		subscriber: func(t *testing.T) message.Subscriber {
			sub, err := nats.NewSubscriber(nats.SubscriberConfig{
				URL: s.ClientURL(), QueueGroupPrefix: "service", SubscribersCount: 4, AckWaitTimeout: wait,
				CloseTimeout: soon, JetStream: config,
			}, watermill.NopLogger{})
			return must(t, sub, err)
		},
		timeout: true,
	}, s.ClientURL()
}

func rabbitMQ(t *testing.T) broker {
	config := amqp.NewDurableQueueConfig(testserver.StartRabbitMQ(t).URL())
	config.Consume.Qos.PrefetchCount = 1
	return broker{
		publisher: func(t *testing.T) message.Publisher {
			p, err := amqp.NewPublisher(config, watermill.NopLogger{})
			return must(t, p, err)
		},
		subscriber: func(t *testing.T) message.Subscriber {
			s, err := amqp.NewSubscriber(config, watermill.NopLogger{})
			return must(t, s, err)
		},
	}
}

// redisStreams starts a server. Its broker delivers a message again if the message is
// not acked within idle.
func redisStreams(t *testing.T, idle time.Duration) broker {
	t.Helper()
	addr := testserver.StartRedis(t).Addr
	return broker{
		publisher: func(t *testing.T) message.Publisher {
			p, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: redis.NewClient(&redis.Options{Addr: addr})}, watermill.NopLogger{})
			return &closeWaits{Publisher: must(t, p, err)}
		},
		subscriber: func(t *testing.T) message.Subscriber {
			s, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
				Client: redis.NewClient(&redis.Options{Addr: addr}), ConsumerGroup: "service",
				MaxIdleTime: idle, ClaimInterval: idle / 4, DisableIndefiniteInitialBlock: true,
			}, watermill.NopLogger{})
			return must(t, s, err)
		},
		timeout: true,
	}
}

// closeWaits lets Close wait for the calls of Publish. The publisher for Redis Streams
// reads and writes one field in both without a mutex, and a router closes its publisher
// while its handlers run.
type closeWaits struct {
	message.Publisher
	mu sync.RWMutex
}

func (p *closeWaits) Publish(topic string, msgs ...*message.Message) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.Publisher.Publish(topic, msgs...)
}

func (p *closeWaits) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Publisher.Close()
}

func must[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// soon is a generous deadline for short operations on a busy machine.
const soon = 90 * time.Second

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testserver.Eventually(t, soon, what, ok)
}

// service stands for one process of a service. It reads from orders and publishes to
// done.
type service struct {
	router *message.Router
	sub    message.Subscriber
	end    func()
}

// serve runs a service whose handler is h. The first of mws is the outermost
// middleware. pub publishes the handler's messages. If pub is nil, serve makes a
// publisher.
func (b broker) serve(t *testing.T, pub message.Publisher, h message.HandlerFunc, mws ...message.HandlerMiddleware) *service {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: soon}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	if pub == nil {
		pub = b.publisher(t)
	}
	s := &service{router: router, sub: b.subscriber(t)}
	router.AddHandler("pay", b.scene+"orders", s.sub, b.scene+"done", pub, h).AddMiddleware(mws...)
	s.start(t)
	return s
}

// collect runs a service that collects the messages of a topic.
func (b broker) collect(t *testing.T, topic string) *list {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: soon}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	l := new(list)
	s := &service{router: router, sub: b.subscriber(t)}
	router.AddConsumerHandler(topic, b.scene+topic, s.sub, func(msg *message.Message) error {
		l.add(msg.Copy())
		return nil
	})
	s.start(t)
	return l
}

func (s *service) start(t *testing.T) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.router.Run(context.Background()) }()
	s.end = sync.OnceFunc(func() {
		if err := errors.Join(s.router.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.end)
	select {
	case <-s.router.Running():
	case err := <-ended:
		t.Fatal(err)
	}
}

// publish publishes n orders with this payload.
func (b broker) publish(t *testing.T, n int, payload string) {
	t.Helper()
	p := b.publisher(t)
	for i := range n {
		if err := p.Publish(b.scene+"orders", message.NewMessage(fmt.Sprintf("order-%d", i), []byte(payload))); err != nil {
			t.Fatal(err)
		}
	}
}

type list struct {
	mu  sync.Mutex
	all []*message.Message
}

func (l *list) add(msg *message.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, msg)
}

func (l *list) copy() []*message.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]*message.Message(nil), l.all...)
}

// uuids returns the number of messages for each UUID.
func (l *list) uuids() map[string]int {
	all := map[string]int{}
	for _, msg := range l.copy() {
		all[msg.UUID]++
	}
	return all
}

// counted returns a middleware that counts the deliveries in n.
func counted(n *atomic.Int32) message.HandlerMiddleware {
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			n.Add(1)
			return h(msg)
		}
	}
}
