package taskmw_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/taskmw"
)

// saving keeps the answers of transactions of a caller, in memory.
type saving struct {
	*memstore.Store
	saved sync.Map // the leases that have committed
}

func (s *saving) Release(ctx context.Context, c store.Claim) error {
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

func TestCommit(t *testing.T) {
	t.Parallel()
	s := &saving{Store: memstore.New()}
	mw := taskmw.Idempotent(newOnce(t, newLocker(t, s)), "mail", taskmw.Type())
	own := errors.New("no reply to the commit")
	runs := 0
	process := func(id, result string, end func(x *transaction) error) error {
		task := asynq.NewTask("mail:"+id, nil)
		return mw(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			runs++
			x := s.begin()
			if err := errors.Join(taskmw.WriteResult(ctx, task, []byte(result)), taskmw.Commit(ctx, x)); err != nil {
				return err
			}
			return end(x)
		})).ProcessTask(t.Context(), task)
	}
	for _, c := range []struct {
		name, id string
		end      func(x *transaction) error
		want     error
		runs     int
	}{
		{"committed", "1", (*transaction).commit, nil, 1},
		{"again", "1", (*transaction).commit, nil, 0},
		{"committed without a reply", "2", func(x *transaction) error { return errors.Join(own, x.commit()) }, nil, 1},
		{"again without a reply", "2", (*transaction).commit, nil, 0},
		{"rolled back", "3", func(*transaction) error { return own }, own, 1},
		{"rolled back unseen", "3", func(*transaction) error { return nil }, errAny, 1},
		{"at last", "3", (*transaction).commit, nil, 1},
		{"once more", "3", (*transaction).commit, nil, 0},
	} {
		runs = 0
		err := process(c.id, "result", c.end)
		if runs != c.runs || c.want == nil && err != nil || c.want == errAny && err == nil || c.want == own && !errors.Is(err, own) {
			t.Errorf("%s: got %v after %d runs, want %v after %d", c.name, err, runs, c.want, c.runs)
		}
	}
	kept, err := newOnce(t, newLocker(t, s)).Do(t.Context(), taskmw.CallOf("mail", asynq.NewTask("mail:1", nil)),
		func(context.Context) (once.Answer, error) { return once.Answer{}, errors.New("there is no answer") })
	if err != nil || string(kept.Value) != "\x01result" {
		t.Errorf("got %q and %v, want the result", kept.Value, err)
	}
	if err := taskmw.Commit(t.Context(), s.begin()); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("outside: got %v, want %v", err, core.ErrInvalid)
	}
}

// errAny stands for any error.
var errAny = errors.New("any error")
