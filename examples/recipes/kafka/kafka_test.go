package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
)

var (
	_ Client = (*kgo.Client)(nil)
	_ Reader = (*kafka.Reader)(nil)
)

var errLost = errors.New("the commit was lost")

// partition is a partition with the committed offset of its group. The commit of the
// offset in the field lost fails the first time.
type partition struct {
	committed, lost int
	values          []string
}

func (p *partition) commit(offset int64) error {
	if int(offset) == p.lost {
		p.lost = -1
		return errLost
	}
	p.committed = int(offset) + 1
	return nil
}

type consumer struct {
	*partition
	next int
}

func (p *partition) join() *consumer { return &consumer{p, p.committed} }

func (c *consumer) PollFetches(ctx context.Context) kgo.Fetches {
	if c.next == len(c.values) {
		return kgo.NewErrFetch(errEnd)
	}
	records := []*kgo.Record{}
	for ; c.next < len(c.values); c.next++ {
		records = append(records, &kgo.Record{Topic: "payments", Offset: int64(c.next), Value: []byte(c.values[c.next])})
	}
	return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "payments", Partitions: []kgo.FetchPartition{{Records: records}}}}}}
}

func (c *consumer) CommitRecords(_ context.Context, records ...*kgo.Record) error {
	return c.commit(records[0].Offset)
}

func (c *consumer) FetchMessage(context.Context) (kafka.Message, error) {
	if c.next == len(c.values) {
		return kafka.Message{}, errEnd
	}
	c.next++
	return kafka.Message{Topic: "payments", Offset: int64(c.next - 1), Value: []byte(c.values[c.next-1])}, nil
}

func (c *consumer) CommitMessages(_ context.Context, messages ...kafka.Message) error {
	return c.commit(messages[0].Offset)
}

var errEnd = errors.New("end of the test's records")

func newRuns(t *testing.T) *once.Once {
	t.Helper()
	locks, err := core.New(memstore.New())
	if err != nil {
		t.Fatal(err)
	}
	runs, err := once.New(locks)
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

// TestConsumers lets the commit of a handled record fail, which ends the consumer. The
// next consumer gets the record again, and does not handle it again.
func TestConsumers(t *testing.T) {
	t.Parallel()
	for name, consume := range map[string]func(c *consumer, runs *once.Once, handle func(context.Context, []byte) error) error{
		"franz-go": func(c *consumer, runs *once.Once, handle func(context.Context, []byte) error) error {
			return FranzGo(t.Context(), c, "service", runs, handle)
		},
		"segmentio": func(c *consumer, runs *once.Once, handle func(context.Context, []byte) error) error {
			return Segmentio(t.Context(), c, "service", runs, handle)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const payments = 5
			runs, p, charged := newRuns(t), &partition{lost: 2}, map[string]int{}
			for i := range payments {
				p.values = append(p.values, fmt.Sprint("payment ", i))
			}
			charge := func(_ context.Context, value []byte) error {
				charged[string(value)]++
				return nil
			}
			for _, want := range []error{errLost, errEnd} {
				if err := consume(p.join(), runs, charge); !errors.Is(err, want) {
					t.Fatalf("got %v, want %v", err, want)
				}
			}
			for _, value := range p.values {
				if n := charged[value]; n != 1 {
					t.Errorf("%s: got %d charges, want 1", value, n)
				}
			}
		})
	}
}

// fetches is a client that returns the elements of polled, one after the other.
type fetches struct {
	*partition
	polled []kgo.Fetches
}

func (f *fetches) PollFetches(context.Context) kgo.Fetches {
	if len(f.polled) == 0 {
		return kgo.NewErrFetch(errEnd)
	}
	next := f.polled[0]
	f.polled = f.polled[1:]
	return next
}

func (f *fetches) CommitRecords(_ context.Context, records ...*kgo.Record) error {
	return f.commit(records[0].Offset)
}

// TestFranzGo_PartitionFails checks that the error of any partition ends the consumer
// after it has handled the records of the other partitions. The first partition has no
// error, so Err0 would return nil.
func TestFranzGo_PartitionFails(t *testing.T) {
	t.Parallel()
	lost := &kgo.ErrDataLoss{Topic: "payments", Partition: 1, ConsumedTo: 9, ResetTo: 5}
	for name, c := range map[string]struct {
		of   error
		want error
	}{
		"authorization failed": {kerr.TopicAuthorizationFailed, kerr.TopicAuthorizationFailed},
		"data loss":            {lost, lost},
		"session lost":         {&kgo.ErrGroupSession{Err: kerr.UnknownMemberID}, kerr.UnknownMemberID},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := &kgo.Record{Topic: "payments", Value: []byte("paid")}
			client := &fetches{&partition{lost: -1}, []kgo.Fetches{{{Topics: []kgo.FetchTopic{{Topic: "payments", Partitions: []kgo.FetchPartition{
				{Partition: 0, Records: []*kgo.Record{record}}, {Partition: 1, Err: c.of},
			}}}}}}}
			handled := 0
			err := FranzGo(t.Context(), client, "service", newRuns(t), func(context.Context, []byte) error { handled++; return nil })
			if !errors.Is(err, c.want) || errors.Is(err, errEnd) || !strings.Contains(err.Error(), "payments/1") {
				t.Errorf("got %v, want %v of payments/1", err, c.want)
			}
			if handled != 1 || client.committed != 1 {
				t.Errorf("handled %d, committed %d, want the record of the other partition", handled, client.committed)
			}
		})
	}
}

// TestHandle_ComesAgainLate delivers a record again after days, as after a long outage
// of the consumer, or after an operator has set the offset back.
func TestHandle_ComesAgainLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, err := core.New(memstore.New())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locks.Close(t.Context()) }()
		runs, err := once.New(locks)
		if err != nil {
			t.Fatal(err)
		}
		handled := 0
		for range 3 {
			if err := Handle(t.Context(), runs, "service", "payments/0/7", nil, func(context.Context, []byte) error { handled++; return nil }); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * 24 * time.Hour)
		}
		if handled != 1 {
			t.Errorf("handled %d times, want 1", handled)
		}
	})
}

// TestHandle_Groups checks that each group handles a record.
func TestHandle_Groups(t *testing.T) {
	t.Parallel()
	runs, handled := newRuns(t), map[string]int{}
	for _, group := range []string{"billing", "shipping", "billing"} {
		err := Handle(t.Context(), runs, group, At("orders", 0, 7), nil, func(context.Context, []byte) error { handled[group]++; return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	if handled["billing"] != 1 || handled["shipping"] != 1 {
		t.Errorf("got %v, want one run for each group", handled)
	}
}

// TestConsumers_HandlerFails checks that a failed record and later records are not
// committed.
func TestConsumers_HandlerFails(t *testing.T) {
	t.Parallel()
	p, own := &partition{lost: -1, values: []string{"a", "b"}}, errors.New("no connection")
	fails := func(context.Context, []byte) error { return own }
	if err := errors.Join(FranzGo(t.Context(), p.join(), "service", newRuns(t), fails), Segmentio(t.Context(), p.join(), "service", newRuns(t), fails)); !errors.Is(err, own) || p.committed != 0 {
		t.Errorf("got %v and %d committed, want %v and none", err, p.committed, own)
	}
}

// outage is a store whose acquires fail while down is true.
type outage struct {
	store.Store
	down atomic.Bool
}

func (o *outage) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if o.down.Load() {
		return store.Grant{}, store.ErrUnavailable
	}
	return o.Store.Acquire(ctx, c)
}

// TestHandle_Waits checks that Handle does not return while another consumer handles
// the record, or while the store is unavailable. Otherwise the caller would commit a
// record that nobody has handled.
func TestHandle_Waits(t *testing.T) {
	own := errors.New("no connection")
	for name, c := range map[string]struct {
		elsewhere error // the error of the other consumer's handler
		down      bool
		handled   int
	}{
		"done elsewhere":    {nil, false, 1},
		"failed elsewhere":  {own, false, 2},
		"store unavailable": {nil, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &outage{Store: memstore.New()}
				locks, err := core.New(s)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = locks.Close(t.Context()) }()
				runs, err := once.New(locks)
				if err != nil {
					t.Fatal(err)
				}
				var handled atomic.Int32
				leave, first, second := make(chan struct{}), make(chan error, 1), make(chan error, 1)
				handle := func(done chan error, returned error) {
					done <- Handle(t.Context(), runs, "service", "payments/0/7", nil, func(context.Context, []byte) error {
						if handled.Add(1) == 1 {
							<-leave
						}
						return returned
					})
				}
				if s.down.Store(c.down); c.down {
					first <- nil
				} else {
					go handle(first, c.elsewhere)
					synctest.Wait()
				}
				go handle(second, nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(second) != 0 {
					t.Errorf("returned %v, and the record is not handled", <-second)
					second <- nil
				}
				s.down.Store(false)
				close(leave)
				if err := <-first; !errors.Is(err, c.elsewhere) {
					t.Errorf("the other consumer: got %v, want %v", err, c.elsewhere)
				}
				if err := <-second; err != nil || int(handled.Load()) != c.handled {
					t.Errorf("got %v after %d runs, want %d", err, handled.Load(), c.handled)
				}
			})
		})
	}
}
