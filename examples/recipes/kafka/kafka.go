// Package kafka handles each record of a topic once, with franz-go or with segmentio's
// kafka-go.
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

// Client has the methods of a *kgo.Client that FranzGo calls.
type Client interface {
	PollFetches(ctx context.Context) kgo.Fetches
	CommitRecords(ctx context.Context, records ...*kgo.Record) error
}

// Reader has the methods of a *kafka.Reader that Segmentio calls.
type Reader interface {
	FetchMessage(ctx context.Context) (kafka.Message, error)
	CommitMessages(ctx context.Context, messages ...kafka.Message) error
}

// Keep is the time for which a handled record is known. A record that is delivered
// again after this time is handled again. So Keep has to exceed the topic's retention,
// which is 7 days by default.
const Keep = 14 * 24 * time.Hour

// FranzGo handles the records of client until ctx is done, Handle or a commit fails, or
// a partition has an error. Examples are a missing right, and records that the cluster
// has lost. FranzGo handles the fetched records of other partitions before it returns
// the error. client must belong to the group and have kgo.DisableAutoCommit.
//
// After an error close client, and call FranzGo with a new client. The old one would
// continue after the records that it has fetched. Its next commit would then skip those
// that were not handled.
func FranzGo(ctx context.Context, client Client, group string, runs *once.Once, handle func(ctx context.Context, value []byte) error) error {
	for {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		for r := range fetches.RecordsAll() {
			if err := Handle(ctx, runs, group, At(r.Topic, int(r.Partition), r.Offset), r.Value, handle); err != nil {
				return err
			}
			if err := client.CommitRecords(ctx, r); err != nil {
				return err
			}
		}
		// Err0 would return the error of the first partition only.
		var errs []error
		fetches.EachError(func(topic string, partition int32, err error) {
			errs = append(errs, fmt.Errorf("kafka: fetch %s/%d: %w", topic, partition, err))
		})
		if len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
}

// Segmentio handles the messages of reader until ctx is done, or Handle, a fetch or a
// commit fails. reader must have the group as its GroupID, and an ErrorLogger. kafka-go
// reports fetches that it tries again, and messages that it skips, only to the
// ErrorLogger. After an error close reader, and call Segmentio with a new reader, for
// the reason that FranzGo has.
func Segmentio(ctx context.Context, reader Reader, group string, runs *once.Once, handle func(ctx context.Context, value []byte) error) error {
	for {
		m, err := reader.FetchMessage(ctx)
		if err != nil {
			return err
		}
		if err := Handle(ctx, runs, group, At(m.Topic, m.Partition, m.Offset), m.Value, handle); err != nil {
			return err
		}
		if err := reader.CommitMessages(ctx, m); err != nil {
			return err
		}
	}
}

// At returns the key of a record that consumers may see twice. If producers may also
// send a record twice, use an ID that the producers set in a header or in the value
// instead.
func At(topic string, partition int, offset int64) string {
	return fmt.Sprintf("%s/%d/%d", topic, partition, offset)
}

// Handle runs handle for a record, unless a consumer of the group has handled the record
// before. Each group handles the record, so the group is a part of the run's key. If
// clusters share a store, let group name the cluster too.
//
// Handle waits while another consumer handles the record, as after a rebalance, and
// while the store is unavailable. If Handle returns nil, the caller may commit the
// record and all records before it.
func Handle(ctx context.Context, runs *once.Once, group, key string, value []byte, handle func(ctx context.Context, value []byte) error) error {
	runs, err := runs.WithOptions(once.Retain(Keep))
	if err != nil {
		return err
	}
	sum := sha256.Sum256(value)
	call := once.Call{Name: "payments", Scope: group, Key: key, Fingerprint: sum[:]}
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
