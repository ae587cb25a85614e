package taskmw

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
)

// KeyFunc finds in a task what is to be locked. An error that matches
// core.ErrInvalid is the task's own fault: it is archived. After any other the
// task is tried again. Neither text is stored with the task; an ErrorHandler
// that unwraps the error finds it.
//
// The result is one part of the key, without control characters, or several
// parts with U+001F between them, which is how Join puts them together: parts
// "a" and "b" under the name "order" lock core.Key("order", "a", "b").
//
// ctx is the task's. Outside of an asynq server, in a unit test, it tells
// nothing of the task.
type KeyFunc func(ctx context.Context, t *asynq.Task) (string, error)

// separator stands between the parts of a key. It can be no part's own, since
// control characters are refused.
const separator = "\x1f"

// maxKey is the length of the longest key that a Locker takes, in bytes.
const maxKey = 512

// Header takes the key from one of the task's headers, by its exact name. It
// panics if name is empty.
func Header(name string) KeyFunc {
	s := newSource("header", name)
	return func(_ context.Context, t *asynq.Task) (string, error) {
		value, ok := t.Headers()[name]
		if !ok {
			return "", s.bad("is missing")
		}
		return s.check(value)
	}
}

// TaskID takes the task's ID, which stays the same when the task is tried again
// or delivered twice. Outside of an asynq server a task has none, and is
// refused.
func TaskID() KeyFunc {
	s := source{"task ID"}
	return func(ctx context.Context, _ *asynq.Task) (string, error) {
		id, ok := asynq.GetTaskID(ctx)
		if !ok {
			return "", s.bad("is known to an asynq server only")
		}
		return s.check(id)
	}
}

// Type takes the task's type: tasks of one type run one at a time.
func Type() KeyFunc {
	s := source{"task type"}
	return func(_ context.Context, t *asynq.Task) (string, error) { return s.check(t.Type()) }
}

// Join makes one key of several, whose parts cannot run into each other:
// Join(Payload("a"), Payload("b")) under the name "x" locks core.Key("x", a, b).
// It fails as the first of parts that fails. It panics if there are none, or one
// is nil.
func Join(parts ...KeyFunc) KeyFunc {
	if len(parts) == 0 {
		panic("taskmw: Join without parts")
	}
	parts = clone("Join", parts)
	return func(ctx context.Context, t *asynq.Task) (string, error) {
		values := make([]string, len(parts))
		for i, part := range parts {
			v, err := part(ctx, t)
			if err != nil {
				return "", err
			}
			values[i] = v
		}
		return strings.Join(values, separator), nil
	}
}

// clone copies keys, so that their caller may change the slice, and refuses nil.
func clone(where string, keys []KeyFunc) []KeyFunc {
	keys = append([]KeyFunc(nil), keys...)
	for _, k := range keys {
		if k == nil {
			panic("taskmw: " + where + ": a key is nil")
		}
	}
	return keys
}

// lockKey is the key to lock for a KeyFunc's result.
func lockKey(name, value string) (string, error) {
	s := source{"key"}
	var key string
	if !strings.Contains(value, separator) {
		if _, err := s.check(value); err != nil {
			return "", err
		}
		key = core.Key(name, value)
	} else {
		parts := strings.Split(value, separator)
		for _, p := range parts {
			if _, err := s.check(p); err != nil {
				return "", err
			}
		}
		key = core.Key(name, parts...)
	}
	if len(key) > maxKey {
		return "", s.bad("is too long")
	}
	return key, nil
}

// source is where in a task a value comes from, in words.
type source struct{ words string }

func newSource(kind, name string) source {
	if name == "" {
		panic("taskmw: the name of a " + kind + " is empty")
	}
	return source{fmt.Sprintf("%s %q", kind, name)}
}

// bad says what is wrong with the value, without the value.
func (s source) bad(fault string) error { return &keyError{"the " + s.words + " " + fault} }

// check refuses what cannot be a part of a key.
func (s source) check(value string) (string, error) {
	switch {
	case value == "":
		return "", s.bad("is empty")
	case len(value) > maxKey:
		return "", s.bad("is too long")
	case !utf8.ValidString(value):
		return "", s.bad("is not valid UTF-8")
	case strings.ContainsFunc(value, unicode.IsControl):
		return "", s.bad("contains a control character")
	}
	return value, nil
}

// keyError says why a task has no key that can be locked, in words that may be
// stored and shown.
type keyError struct{ detail string }

func (e *keyError) Error() string { return "taskmw: " + e.detail }
func (e *keyError) Unwrap() error { return core.ErrInvalid }
