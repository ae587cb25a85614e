package taskmw

import (
	"context"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core/keys"
)

// KeyFunc returns the key of a task. After an error that matches core.ErrInvalid the
// task is archived, because the task is wrong. After any other error the task is tried
// again. The text of the KeyFunc's error is not stored with the task. An ErrorHandler
// finds that error with errors.Is and errors.As.
//
// The result is one part of the key, without control characters. Or it has several
// parts with U+001F between them, as Join makes them. The parts "a" and "b" under the
// name "order" lock core.Key("order", "a", "b").
//
// ctx is the task's context. Without an asynq server, as in a unit test, it has no data
// of the task.
type KeyFunc func(ctx context.Context, t *asynq.Task) (string, error)

func sourceOf(kind string) keys.Source { return keys.Source{Adapter: "taskmw", Kind: kind} }

// headed is implemented by tasks of asynq v0.26.0 and later.
type headed interface{ Headers() map[string]string }

// Header takes the key from one of the task's headers, by its exact name. Header panics
// if name is empty, and with asynq before v0.26.0, whose tasks have no headers.
func Header(name string) KeyFunc {
	s := keys.NewSource("taskmw", "header", name)
	if _, ok := any((*asynq.Task)(nil)).(headed); !ok {
		panic("taskmw: Header: tasks have headers since asynq v0.26.0, and this asynq is older")
	}
	return func(_ context.Context, t *asynq.Task) (string, error) {
		value, ok := any(t).(headed).Headers()[name]
		if !ok {
			return "", s.Bad("is missing")
		}
		return s.Part(value)
	}
}

// TaskID takes the key from the task's ID. A retry and a second delivery of the task
// have the same ID. Without an asynq server a task has no ID, and is refused.
func TaskID() KeyFunc {
	s := sourceOf("task ID")
	return func(ctx context.Context, _ *asynq.Task) (string, error) {
		id, ok := asynq.GetTaskID(ctx)
		if !ok {
			return "", s.Bad("is known to an asynq server only")
		}
		return s.Part(id)
	}
}

// Type takes the key from the task's type: tasks of one type run one at a time.
func Type() KeyFunc {
	s := sourceOf("task type")
	return func(_ context.Context, t *asynq.Task) (string, error) { return s.Part(t.Type()) }
}

// Join combines several keys into one key with distinct parts. For example,
// Join(Payload("a"), Payload("b")) under the name "x" locks core.Key("x", a, b). The
// returned KeyFunc fails with the error of the first part that fails. Join panics if
// there are no parts, or if one is nil.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 {
		panic("taskmw: Join without parts")
	}
	parts = clone("Join", parts)
	return func(ctx context.Context, t *asynq.Task) (string, error) {
		return keys.Join(parts, func(part KeyFunc) (string, error) { return part(ctx, t) })
	}
}

// clone returns a copy of keys, because the caller may change the slice. It panics if a
// key is nil.
func clone(where string, keys []KeyFunc) []KeyFunc {
	keys = append([]KeyFunc(nil), keys...)
	for _, k := range keys {
		if k == nil {
			panic("taskmw: " + where + ": a key is nil")
		}
	}
	return keys
}
