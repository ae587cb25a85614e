package taskmw_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/taskmw"
)

// TestTask_Cost checks that reading a key allocates at most one and a half times the
// length of a large payload. The producer of a task decides its size.
func TestTask_Cost(t *testing.T) {
	length := max(2, tally.AllTrials(24)/3) << 20
	fill := func(head, text, tail string) []byte {
		return []byte(head + strings.Repeat(text, (length-len(head)-len(tail))/len(text)) + tail)
	}
	for _, c := range []struct {
		name    string
		path    string
		payload []byte
		want    string // empty if the task is refused
	}{
		{"many fields", "id", fill(`{`, `"a":1,`, `"id":1}`), "1"},
		{"a long string", "id", fill(`{"x":"`, "x", `","id":1}`), "1"},
		{"a long key", "id", fill(`{"id":"`, "x", `"}`), ""},
		{"a long number", "id", fill(`{"id":`, "1", `}`), ""},
		{"a long array", "id", fill(`{"x":[`, "[1],", `1],"id":1}`), "1"},
		{"too deep", "id", fill(`{"x":`, "[", ""), ""},
		{"too deep on the way", "a.a.a.a", fill("", `{"a":`, ""), ""},
	} {
		key, task := taskmw.Payload(c.path), asynq.NewTask("pay", c.payload)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := key(t.Context(), task)
		runtime.ReadMemStats(&after)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, core.ErrInvalid) || len(fmt.Sprint(err)) > 200 {
			t.Errorf("%s: got %.20q, %.500v", c.name, got, err)
		}
		// One value is copied.
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(length+length/2) {
			t.Errorf("%s: %d bytes were allocated for %d", c.name, n, length)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	t.Run("full queue is busy at once", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t, core.WithMaxWaiting(1, 0))
		release := hold(t, l, "order:5")
		mw := taskmw.Lock(l, "order", taskmw.Payload("id"), taskmw.Acquire(core.Wait(soon)), taskmw.OnBusy(taskmw.Fail))
		answers := make(chan error, 10)
		for range cap(answers) {
			go func() {
				answers <- run(context.Background(), mw, `{"id":5}`, func(context.Context, *asynq.Task) error { return nil })
			}()
		}
		for range cap(answers) - 2 { // one caller asks the store, and one is queued after it
			if err := within(t, "the others are refused", answers); !errors.Is(err, core.ErrBusy) {
				t.Errorf("got %v", err)
			}
		}
		release()
		for range 2 {
			if err := within(t, "a waiter is served", answers); err != nil {
				t.Errorf("got %v", err)
			}
		}
	})
}
