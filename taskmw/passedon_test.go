package taskmw_test

import (
	"context"
	"errors"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw"
)

// TestIdempotent_KeyPassedOn checks a task that gets the key of the task that enqueued
// it.
func TestIdempotent_KeyPassedOn(t *testing.T) {
	t.Parallel()
	runs := newOnce(t, memLocker(t))
	run := func(name, kind string) (ran bool, err error) {
		h := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { ran = true; return nil })
		err = taskmw.Idempotent(runs, name, taskmw.Payload("id"))(h).ProcessTask(t.Context(), asynq.NewTask(kind, []byte(`{"id":1}`)))
		return ran, err
	}
	if ran, err := run("pay", "order:pay"); !ran || err != nil {
		t.Fatalf("first task: got %v, %v, want a run", ran, err)
	}
	if ran, err := run("pay", "order:mail"); ran || !errors.Is(err, once.ErrMismatch) || !errors.Is(err, asynq.SkipRetry) {
		t.Errorf("another type, same name: got %v, %v, want %v", ran, err, once.ErrMismatch)
	}
	if ran, err := run("pay", "order:pay"); ran || err != nil {
		t.Errorf("same type and name: got %v, %v, want no run", ran, err)
	}
	if ran, err := run("mail", "order:mail"); !ran || err != nil {
		t.Errorf("another name: got %v, %v, want a run", ran, err)
	}
}
