package taskmw_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw"
)

func TestNotFinal(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]taskmw.KeyFunc{
		"one middleware":  {taskmw.Payload("id")},
		"two middlewares": {taskmw.Payload("id"), taskmw.Payload("order")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := atomic.Int32{}
			mw := func(h asynq.Handler) asynq.Handler {
				for _, key := range keys {
					h = taskmw.Idempotent(newOnce(t, memLocker(t), once.AtMostOnce()), "mail", key)(h)
				}
				return h
			}
			task := mw(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				if runs.Add(1) <= 2 && !once.NotFinal(ctx) {
					return errors.New("no run")
				}
				return nil
			}))
			for i, want := range []int32{1, 2, 3, 3} {
				if err := task.ProcessTask(t.Context(), asynq.NewTask("order:pay", []byte(`{"id":1,"order":2}`))); err != nil || runs.Load() != want {
					t.Errorf("task %d: got %v after %d runs, want %d", i+1, err, runs.Load(), want)
				}
			}
		})
	}
}
