package taskmw_test

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/taskmw"
)

func TestWriteResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	large := strings.Repeat("x", 256<<10+1)
	var runs atomic.Int32
	handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		runs.Add(1)
		text := map[string]string{"small": "receipt 7", "large": large, "most": large[1:], "empty": ""}[task.Type()]
		if task.Type() == "plain" {
			_, err := task.ResultWriter().Write([]byte("unseen"))
			return err
		}
		if err := taskmw.WriteResult(ctx, task, []byte("first")); err != nil {
			return err
		}
		return taskmw.WriteResult(ctx, task, []byte(text))
	})
	inner := taskmw.Idempotent(newOnce(t, r.locker()), "inner", taskmw.Type())
	outer := taskmw.Idempotent(newOnce(t, r.locker()), "outer", taskmw.Payload("id"))
	r.serve(taskmw.Configure(config()), outer(inner(handler)))
	for _, c := range []struct{ kind, first, second string }{
		{"small", "receipt 7", "receipt 7"},
		{"most", large[1:], large[1:]},
		{"large", large, ""},
		{"empty", "", ""},
		{"plain", "unseen", ""},
	} {
		before := runs.Load()
		// The outer middleware replays the first task's result to the second task.
		for i, payload := range []string{`{"id":"` + c.kind + `"}`, `{"id":"` + c.kind + `"}`} {
			want := c.first
			if i > 0 {
				want = c.second
			}
			id := r.enqueue(c.kind, payload, asynq.Retention(time.Hour))
			var info *asynq.TaskInfo
			eventually(t, c.kind+" is completed", func() bool {
				info = r.task(id)
				return info != nil && info.State == asynq.TaskStateCompleted
			})
			if string(info.Result) != want {
				t.Errorf("%s, task %d: got a result of %d bytes %.20q, want %d bytes %.20q", c.kind, i+1, len(info.Result), info.Result, len(want), want)
			}
		}
		if n := runs.Load() - before; n != 1 {
			t.Errorf("%s: got %d runs, want 1", c.kind, n)
		}
	}
}

// TestWriteResult_ReplayedInside checks that an outer Idempotent stores the result that
// an inner Idempotent replays.
func TestWriteResult_ReplayedInside(t *testing.T) {
	t.Parallel()
	l := memLocker(t)
	inner := taskmw.Idempotent(newOnce(t, l), "inner", taskmw.Payload("id"))
	outer := taskmw.Idempotent(newOnce(t, l), "outer", taskmw.Type())
	task := asynq.NewTask("order:pay", []byte(`{"id":"1"}`))
	write := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		return taskmw.WriteResult(ctx, t, []byte("receipt 7"))
	})
	for _, h := range []asynq.Handler{inner(write), outer(inner(write))} {
		if err := h.ProcessTask(t.Context(), task); err != nil {
			t.Fatal(err)
		}
	}
	out, err := newOnce(t, l).Do(t.Context(), taskmw.CallOf("outer", task), func(context.Context) (once.Answer, error) {
		t.Error("got a run, want the stored answer")
		return once.Answer{}, nil
	})
	if want := append([]byte{1}, "receipt 7"...); err != nil || !bytes.Equal(out.Value, want) {
		t.Errorf("got %q and %v, want %q", out.Value, err, want)
	}
}

// TestWriteResult_UnknownVersion checks that a result of a later version of the kit
// causes an error and not another run.
func TestWriteResult_UnknownVersion(t *testing.T) {
	t.Parallel()
	l := memLocker(t)
	task := asynq.NewTask("order:pay", []byte(`{"id":"1"}`))
	for value, want := range map[string]string{"": "", "\x02x": "a version that this program does not know"} {
		name := "version" + strings.Repeat("2", len(value))
		if _, err := newOnce(t, l).Do(t.Context(), taskmw.CallOf(name, task), func(context.Context) (once.Answer, error) {
			return once.Answer{Value: []byte(value)}, nil
		}); err != nil {
			t.Fatal(err)
		}
		err := taskmw.Idempotent(newOnce(t, l), name, taskmw.Type())(mustNotRun(t)).ProcessTask(t.Context(), task)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("record %q: got %v, want %q", value, err, want)
		}
	}
}
