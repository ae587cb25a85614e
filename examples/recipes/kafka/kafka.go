// Package kafka handles each record of a topic once, with franz-go or with segmentio's kafka-go.
package kafka

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
)

// Client is what a consumer needs of a *kgo.Client.
type Client interface {
	PollFetches(ctx context.Context) kgo.Fetches
	CommitRecords(ctx context.Context, records ...*kgo.Record) error
}

// Reader is what a consumer needs of a *kafka.Reader.
type Reader interface {
	FetchMessage(ctx context.Context) (kafka.Message, error)
	CommitMessages(ctx context.Context, messages ...kafka.Message) error
}

// Keep is how long a record is known, counted from its handling. After it, a record that comes
// again is handled again, so it is longer than the topic keeps records, by default 7 days.
const Keep = 14 * 24 * time.Hour

// FranzGo handles the records of client until ctx is done, handle fails or a partition has an
// error: no right, records that the cluster has lost, a group that was left. The records beside
// it are handled before. The client is in a group, and has kgo.DisableAutoCommit.
func FranzGo(ctx context.Context, client Client, runs *once.Once, handle func(ctx context.Context, value []byte) error) error {
	for {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		for r := range fetches.RecordsAll() {
			if err := Handle(ctx, runs, At(r.Topic, int(r.Partition), r.Offset), r.Value, handle); err != nil {
				return err
			}
			if err := client.CommitRecords(ctx, r); err != nil {
				return err
			}
		}
		// Not Err0, which is the error of the first partition alone.
		var errs []error
		fetches.EachError(func(topic string, partition int32, err error) {
			errs = append(errs, fmt.Errorf("kafka: fetch %s/%d: %w", topic, partition, err))
		})
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
}

// Segmentio handles the messages of reader until ctx is done or handle fails. The reader has a
// GroupID, and an ErrorLogger: what it cannot fetch, or skips, it reports there alone.
func Segmentio(ctx context.Context, reader Reader, runs *once.Once, handle func(ctx context.Context, value []byte) error) error {
	for {
		m, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		if err := Handle(ctx, runs, At(m.Topic, m.Partition, m.Offset), m.Value, handle); err != nil {
			return err
		}
		if err := reader.CommitMessages(ctx, m); err != nil {
			return err
		}
	}
}

// At is the key of a record that its consumers may see twice. Where producers may send it twice
// too, take an ID that they set, from a header or the value.
func At(topic string, partition int, offset int64) string {
	return fmt.Sprintf("%s/%d/%d", topic, partition, offset)
}

// Handle runs handle for a record, unless it was done before. While another consumer runs it, as
// after a rebalance, and while the store is unavailable, it waits: what it returns nil for is
// committed, with all records before it.
func Handle(ctx context.Context, runs *once.Once, key string, value []byte, handle func(ctx context.Context, value []byte) error) error {
	runs, err := runs.WithOptions(once.Retain(Keep))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(value)
	call := once.Call{Name: "payments", Key: key, Fingerprint: sum[:]}
	for {
		_, err := runs.Do(ctx, call, func(ctx context.Context) (once.Answer, error) { return once.Answer{}, handle(ctx, value) })
		if !errors.Is(err, once.ErrInProgress) && !errors.Is(err, core.ErrUnavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second/4 + rand.N(time.Second/4)):
		}
	}
}
