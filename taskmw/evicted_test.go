package taskmw_test

import (
	"context"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw"
)

// TestLateAnswer checks runs that continue after Locker.Close. It covers hazard 58.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	for policy, opts := range map[string][]once.Option{"": nil, " with AtMostOnce": {once.AtMostOnce()}} {
		t.Run("success after Close"+policy, func(t *testing.T) {
			t.Parallel()
			store := memstore.New()
			l := newLocker(t, store)
			err := run(t.Context(), taskmw.Idempotent(newOnce(t, l, opts...), "pay", taskmw.Payload("id")), `{"id":1}`,
				func(ctx context.Context, _ *asynq.Task) error {
					end, cancel := context.WithCancel(ctx)
					cancel()
					if err := l.Close(end); err == nil {
						t.Error("it was closed while a run goes on")
					}
					return nil
				})
			if err != nil {
				t.Error(err)
			}
			again := taskmw.Idempotent(newOnce(t, newLocker(t, store), opts...), "pay", taskmw.Payload("id"))
			if err := run(t.Context(), again, `{"id":1}`, mustNotRun(t)); err != nil {
				t.Error(err)
			}
		})
	}
}
