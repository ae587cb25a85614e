package watermillmw_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/taskmw/watermillmw"
)

// saving is a store in memory whose answers can be committed in a caller's transaction.
type saving struct {
	*memstore.Store
	saved sync.Map    // the leases that have committed
	down  atomic.Bool // releases fail with ErrUnavailable
}

func (s *saving) Release(ctx context.Context, c store.Claim) error {
	if s.down.Load() {
		return store.ErrUnavailable
	}
	err := s.Store.Release(ctx, c)
	if _, ok := s.saved.Load(c.Lease); ok && c.Record != nil && errors.Is(err, store.ErrLost) {
		return store.ErrSaved
	}
	return err
}

// begin begins a transaction, which is a once.Saver.
func (s *saving) begin() *transaction { return &transaction{in: s} }

type transaction struct {
	in *saving
	c  store.Claim
}

func (x *transaction) SaveRun(_ context.Context, s store.Store, c store.Claim) error {
	if s != store.Store(x.in) {
		return store.ErrUnsupported
	}
	x.c = c
	return nil
}

func (x *transaction) commit() error {
	x.in.saved.Store(x.c.Lease, true)
	return x.in.Store.Release(context.Background(), x.c)
}

// TestCommit checks messages whose success is stored in a transaction, for each outcome
// of the transaction (hazard 74).
func TestCommit(t *testing.T) {
	t.Parallel()
	s := &saving{Store: memstore.New()}
	l := newLocker(t, s)
	own := errors.New("no reply to the commit")
	runs := 0
	process := func(id string, end func(x *transaction) error) ([]*message.Message, error) {
		return paid(newOnce(t, l))(func(msg *message.Message) ([]*message.Message, error) {
			runs++
			x, out := s.begin(), message.NewMessage(fmt.Sprint(id, "-", runs), nil)
			if err := watermillmw.Commit(msg.Context(), x, out); err != nil {
				return nil, err
			}
			return []*message.Message{message.NewMessage("another", nil)}, end(x)
		})(delivered(id, ""))
	}
	for _, c := range []struct {
		name, id string
		end      func(x *transaction) error
		want     string // the published message, or the error
		runs     int
	}{
		{"committed", "1", (*transaction).commit, "1-1", 1},
		{"again", "1", (*transaction).commit, "1-1", 0},
		{"committed without a reply", "2", func(x *transaction) error { return errors.Join(own, x.commit()) }, "2-1", 1},
		{"again without a reply", "2", (*transaction).commit, "2-1", 0},
		{"rolled back", "3", func(*transaction) error { return own }, "own error", 1},
		{"rolled back unseen", "3", func(*transaction) error { return nil }, "error", 1},
		{"at last", "3", (*transaction).commit, "3-1", 1},
		{"once more", "3", (*transaction).commit, "3-1", 0},
	} {
		runs = 0
		produced, err := process(c.id, c.end)
		got := "error"
		switch {
		case errors.Is(err, own):
			got = "own error"
		case err == nil && len(produced) == 1:
			got = produced[0].UUID
		}
		if got != c.want || runs != c.runs {
			t.Errorf("%s: got %s (%v) after %d runs, want %s after %d", c.name, got, err, runs, c.want, c.runs)
		}
	}
	if err := watermillmw.Commit(t.Context(), s.begin()); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("outside: got %v, want %v", err, core.ErrInvalid)
	}
	large := message.NewMessage("large", make([]byte, watermillmw.MaxProduced))
	_, err := paid(newOnce(t, l))(func(msg *message.Message) ([]*message.Message, error) {
		return nil, watermillmw.Commit(msg.Context(), s.begin(), large)
	})(delivered("4", ""))
	if !errors.Is(err, core.ErrInvalid) {
		t.Errorf("too large: got %v, want %v", err, core.ErrInvalid)
	}
}

// TestCommit_NotKnown checks that the next delivery finds out an unknown outcome of the
// transaction.
func TestCommit_NotKnown(t *testing.T) {
	t.Parallel()
	sim(t, "message is nacked", func(t *testing.T) {
		s := &saving{Store: memstore.New()}
		l := newLocker(t, s)
		msg := order()
		produced, err := paid(newOnce(t, l))(func(msg *message.Message) ([]*message.Message, error) {
			x := s.begin()
			if err := watermillmw.Commit(msg.Context(), x, message.NewMessage("out", nil)); err != nil {
				return nil, err
			}
			s.down.Store(true)
			return nil, x.commit()
		})(msg)
		postponed(t, "not known", msg, produced, err)
		s.down.Store(false)
		time.Sleep(time.Minute)
		produced, err = paid(newOnce(t, l))(mustNotRun(t))(order())
		if err != nil || len(produced) != 1 || produced[0].UUID != "out" {
			t.Errorf("again: got %v and %v, want the message out", produced, err)
		}
	})
}
