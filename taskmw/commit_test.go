package taskmw_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/storetest/saving"
	"github.com/lockkit/lockkit/taskmw"
)

func TestCommit(t *testing.T) {
	t.Parallel()
	s := saving.New()
	mw := taskmw.Idempotent(newOnce(t, newLocker(t, s)), "mail", taskmw.Type())
	own := errors.New("no reply to the commit")
	runs := 0
	process := func(id, result string, end func(x *saving.Tx) error) error {
		task := asynq.NewTask("mail:"+id, nil)
		return mw(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			runs++
			x := s.Begin()
			if err := errors.Join(taskmw.WriteResult(ctx, task, []byte(result)), taskmw.Commit(ctx, x)); err != nil {
				return err
			}
			return end(x)
		})).ProcessTask(t.Context(), task)
	}
	for _, c := range []struct {
		name, id string
		end      func(x *saving.Tx) error
		want     error
		runs     int
	}{
		{"committed", "1", (*saving.Tx).Commit, nil, 1},
		{"again", "1", (*saving.Tx).Commit, nil, 0},
		{"committed without a reply", "2", func(x *saving.Tx) error { return errors.Join(own, x.Commit()) }, nil, 1},
		{"again without a reply", "2", (*saving.Tx).Commit, nil, 0},
		{"rolled back", "3", func(*saving.Tx) error { return own }, own, 1},
		{"rolled back unseen", "3", func(*saving.Tx) error { return nil }, errAny, 1},
		{"at last", "3", (*saving.Tx).Commit, nil, 1},
		{"once more", "3", (*saving.Tx).Commit, nil, 0},
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
	if err := taskmw.Commit(t.Context(), s.Begin()); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("outside: got %v, want %v", err, core.ErrInvalid)
	}
}

// errAny stands for any error.
var errAny = errors.New("any error")

// TestCommit_ResultBeforeLock commits a result that a middleware has written before an
// inner Lock.
func TestCommit_ResultBeforeLock(t *testing.T) {
	t.Parallel()
	s := saving.New()
	l := newLocker(t, s)
	outer, inner := taskmw.Idempotent(newOnce(t, l), "mail", taskmw.Type()), taskmw.Lock(l, "order", taskmw.Type())
	task := asynq.NewTask("mail:1", nil)
	locked := inner(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		x := s.Begin()
		return errors.Join(taskmw.Commit(ctx, x), x.Commit())
	}))
	err := outer(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		return errors.Join(taskmw.WriteResult(ctx, task, []byte("result")), locked.ProcessTask(ctx, task))
	})).ProcessTask(t.Context(), task)
	if err != nil {
		t.Errorf("got %v, want nil", err)
	}
	kept, err := newOnce(t, l).Do(t.Context(), taskmw.CallOf("mail", task),
		func(context.Context) (once.Answer, error) { return once.Answer{}, errors.New("there is no answer") })
	if err != nil || string(kept.Value) != "\x01result" {
		t.Errorf("got %q and %v, want the result", kept.Value, err)
	}
}
