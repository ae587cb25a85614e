package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	segmentio "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/examples/recipes/kafka"
)

const (
	topic    = "payments"
	payments = 5
	soon     = 90 * time.Second
)

var errStopped = errors.New("stopped before its commit")

// stopping is a client of a member of the group. Its at-th commit fails, which stops
// the member.
type stopping struct {
	at int // counted down; 0: no commit fails
	kafka.Client
	kafka.Reader
}

func (s *stopping) stops() bool { s.at--; return s.at == 0 }

func (s *stopping) CommitRecords(ctx context.Context, records ...*kgo.Record) error {
	if s.stops() {
		return errStopped
	}
	return s.Client.CommitRecords(ctx, records...)
}

func (s *stopping) CommitMessages(ctx context.Context, messages ...segmentio.Message) error {
	if s.stops() {
		return errStopped
	}
	return s.Reader.CommitMessages(ctx, messages...)
}

// consume runs a member of the group with s as its client, until ctx is done or s stops
// it.
type consume func(ctx context.Context, t *testing.T, brokers []string, s *stopping, runs *once.Once, handle func(context.Context, []byte) error) error

func franzGo(ctx context.Context, t *testing.T, brokers []string, s *stopping, runs *once.Once, handle func(context.Context, []byte) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumerGroup("service"), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		return err
	}
	defer client.Close()
	s.Client = client
	return kafka.FranzGo(ctx, s, "service", runs, handle)
}

func kafkaGo(ctx context.Context, t *testing.T, brokers []string, s *stopping, runs *once.Once, handle func(context.Context, []byte) error) error {
	reader := segmentio.NewReader(segmentio.ReaderConfig{
		Brokers: brokers, GroupID: "service", Topic: topic, StartOffset: segmentio.FirstOffset, MaxWait: 100 * time.Millisecond,
		ErrorLogger: segmentio.LoggerFunc(t.Logf),
	})
	defer func() { _ = reader.Close() }()
	s.Reader = reader
	return kafka.Segmentio(ctx, s, "service", runs, handle)
}

// TestTwoMembers stops a member of a group after it has handled a payment, before the
// payment is committed. The other member gets the payment again. Each payment is
// handled once.
func TestTwoMembers(t *testing.T) {
	t.Parallel()
	for name, member := range map[string]consume{"franz-go": franzGo, "kafka-go": kafkaGo} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			brokers := cluster.ListenAddrs()
			ctx, cancel := context.WithTimeout(t.Context(), soon)
			defer cancel()
			producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
			if err != nil {
				t.Fatal(err)
			}
			for i := range payments {
				if err := producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: fmt.Append(nil, "payment ", i)}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			producer.Close()
			locks, err := core.New(memstore.New())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = locks.Close(context.Background()) }()
			runs, err := once.New(locks)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var handled []string
			charge := func(_ context.Context, value []byte) error {
				mu.Lock()
				defer mu.Unlock()
				if handled = append(handled, string(value)); len(handled) == payments {
					time.AfterFunc(time.Second, cancel) // leaves time for a repeated payment
				}
				return nil
			}
			if err := member(ctx, t, brokers, &stopping{at: 3}, runs, charge); !errors.Is(err, errStopped) {
				t.Fatalf("got %v from the first member, want %v", err, errStopped)
			}
			if len(handled) != 3 {
				t.Fatalf("the first member handled %q, want 3", handled)
			}
			var second stopping
			if err := member(ctx, t, brokers, &second, runs, charge); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v from the second member, want %v", err, context.Canceled)
			}
			if commits := -second.at; commits != 3 {
				t.Errorf("the second member has committed %d, want 3: the third payment again, and the rest", commits)
			}
			want := []string{}
			for i := range payments {
				want = append(want, fmt.Sprint("payment ", i))
			}
			if !slices.Equal(handled, want) {
				t.Errorf("handled %q, want %q", handled, want)
			}
		})
	}
}
