package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
)

const soon = 60 * time.Second

// consumers run one consumer of the group until ctx is done or handle fails.
var consumers = map[string]func(ctx context.Context, addrs []string, runs *once.Once, handle func(context.Context, []byte) error) error{
	"franz-go": func(ctx context.Context, addrs []string, runs *once.Once, handle func(context.Context, []byte) error) error {
		client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ConsumerGroup("service"), kgo.ConsumeTopics("payments"), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			return err
		}
		defer client.Close()
		return FranzGo(ctx, client, runs, handle)
	},
	"segmentio": func(ctx context.Context, addrs []string, runs *once.Once, handle func(context.Context, []byte) error) error {
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: addrs, GroupID: "service", Topic: "payments", StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond})
		defer reader.Close()
		return Segmentio(ctx, reader, runs, handle)
	},
}

// A consumer dies after it has handled a record and before it has committed that. The next one
// gets the record again, and does not handle it again.
func TestConsumers(t *testing.T) {
	t.Parallel()
	for name, consume := range consumers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const payments = 10
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "payments"))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			produce(ctx, t, cluster.ListenAddrs(), payments)
			locks, err := core.New(memstore.New())
			if err != nil {
				t.Fatal(err)
			}
			runs, err := once.New(locks)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			charged := map[string]int{}
			charge := func(_ context.Context, value []byte) error {
				mu.Lock()
				defer mu.Unlock()
				charged[string(value)]++
				return nil
			}
			// The first one handles the third payment, and dies before the commit gets through.
			dies, died := context.WithCancel(ctx)
			var dead atomic.Bool
			cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				return nil, errors.New("no connection"), dead.Load()
			})
			err = consume(dies, cluster.ListenAddrs(), runs, func(ctx context.Context, value []byte) error {
				if string(value) == "payment 2" {
					dead.Store(true)
					died()
				}
				return charge(ctx, value)
			})
			dead.Store(false)
			if err == nil {
				t.Fatal("got no error, want the end of the consumer")
			}
			if len(charged) != 3 {
				t.Fatalf("got %v, want 3 payments", charged)
			}
			ends, end := context.WithCancel(ctx)
			err = consume(ends, cluster.ListenAddrs(), runs, func(ctx context.Context, value []byte) error {
				if string(value) == fmt.Sprint("payment ", payments-1) {
					defer end()
				}
				return charge(ctx, value)
			})
			if err == nil {
				t.Fatal("got no error, want the end of the consumer")
			}
			for i := range payments {
				if n := charged[fmt.Sprint("payment ", i)]; n != 1 {
					t.Errorf("payment %d: got %d charges, want 1", i, n)
				}
			}
		})
	}
}

// produce sends payments to the topic.
func produce(ctx context.Context, t *testing.T, addrs []string, n int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic("payments"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range n {
		if err := client.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint("payment ", i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// A record that another consumer handles waits for that.
func TestHandle_RunsElsewhere(t *testing.T) {
	t.Parallel()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	inside, done := make(chan struct{}), make(chan error, 2)
	go func() {
		done <- Handle(t.Context(), runs, "payments/0/7", nil, func(context.Context, []byte) error {
			close(inside)
			time.Sleep(100 * time.Millisecond)
			return nil
		})
	}()
	<-inside
	go func() {
		done <- Handle(t.Context(), runs, "payments/0/7", nil, func(context.Context, []byte) error { return errors.New("a second run") })
	}()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
