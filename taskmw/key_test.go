package taskmw_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/taskmw"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	constant := func(value string) taskmw.KeyFunc {
		return func(context.Context, *asynq.Task) (string, error) { return value, nil }
	}
	own := errors.New("no tenant of alice@example.com")
	for _, c := range []struct {
		name  string
		key   taskmw.KeyFunc
		want  string // the key that is locked, or
		fault string // the text of the error
	}{
		{"the type", taskmw.Type(), "order:order%3Apay", ""},
		{"the task ID without a server", taskmw.TaskID(), "", "known to an asynq server only"},
		{"two parts", taskmw.Join(taskmw.Type(), taskmw.Payload("id")), "order:order%3Apay:42", ""},
		{"parts with a colon", taskmw.Join(constant("a:b"), constant("c")), "order:a%3Ab:c", ""},
		{"parts of which one fails", taskmw.Join(taskmw.Payload("id"), taskmw.TaskID()), "", "known to an asynq server only"},
		{"parts of which one is empty", taskmw.Join(constant("a"), constant("")), "", "the key is empty"},
		{"a function", constant("ü{%}"), "order:ü%7B%25%7D", ""},
		{"function with a control character", constant("a\nb"), "", "the key contains a control character"},
		{"key too long when escaped", constant(strings.Repeat("%", 200)), "", "the key is too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			task := asynq.NewTask("order:pay", []byte(`{"id":42}`))
			h := asynq.HandlerFunc(keyOf)
			if c.fault != "" {
				h = mustNotRun(t)
			}
			l := memLocker(t)
			err := taskmw.Lock(l, "order", c.key)(h).ProcessTask(t.Context(), task)
			if c.fault == "" {
				if err == nil || err.Error() != c.want {
					t.Errorf("locked %v, want %q", err, c.want)
				}
				return
			}
			if !errors.Is(err, core.ErrInvalid) || !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), "order: ") || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("got %v, want ErrInvalid and SkipRetry that say %q", err, c.fault)
			}
			err = taskmw.Idempotent(newOnce(t, l), "order", c.key)(h).ProcessTask(t.Context(), task)
			if !errors.Is(err, core.ErrInvalid) || !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("Idempotent: got %v, want ErrInvalid and SkipRetry that say %q", err, c.fault)
			}
		})
	}

	t.Run("own error of the function", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			err  error
			skip bool
		}{{own, false}, {errors.Join(own, core.ErrInvalid), true}} {
			key := func(context.Context, *asynq.Task) (string, error) { return "", c.err }
			err := run(t.Context(), taskmw.Lock(memLocker(t), "order", key), "", mustNotRun(t))
			if !errors.Is(err, own) || errors.Is(err, asynq.SkipRetry) != c.skip || strings.Contains(err.Error(), "alice") {
				t.Errorf("got %v, skip %v", err, errors.Is(err, asynq.SkipRetry))
			}
		}
	})

	t.Run("task types without a handler", func(t *testing.T) {
		t.Parallel()
		l := memLocker(t)
		mux := asynq.NewServeMux()
		mux.Use(func(next asynq.Handler) asynq.Handler { return asynq.HandlerFunc(next.ProcessTask) })
		mux.Use(taskmw.Idempotent(newOnce(t, l), "once", taskmw.Payload("id")), taskmw.Lock(l, "order", taskmw.Payload("id")))
		mux.HandleFunc("order:pay", keyOf)
		err := mux.ProcessTask(t.Context(), asynq.NewTask("newer", nil))
		if err == nil || !strings.Contains(err.Error(), "handler not found") || errors.Is(err, asynq.SkipRetry) {
			t.Errorf("got %v", err)
		}
		err = mux.ProcessTask(t.Context(), asynq.NewTask("order:pay", []byte(`{"id":5}`)))
		if err == nil || err.Error() != "order:5" {
			t.Errorf("got %v", err)
		}
	})
}

func TestBadArgumentsPanic(t *testing.T) {
	t.Parallel()
	l := memLocker(t)
	o := newOnce(t, l)
	id := taskmw.Payload("id")
	for name, f := range map[string]func(){
		"no locker":                  func() { taskmw.Lock(nil, "order", id) },
		"no name":                    func() { taskmw.Lock(l, "", id) },
		"a name with a colon":        func() { taskmw.Lock(l, "a:b", id) },
		"a name that is too long":    func() { taskmw.Lock(l, strings.Repeat("x", 511), id) },
		"no key":                     func() { taskmw.Lock(l, "order", nil) },
		"a nil option":               func() { taskmw.Lock(l, "order", id, nil) },
		"a bad acquire option":       func() { taskmw.Lock(l, "order", id, taskmw.Acquire(core.TTL(0))) },
		"a nil acquire option":       func() { taskmw.Acquire(nil) },
		"a nil further key":          func() { taskmw.Also(nil) },
		"no such policy":             func() { taskmw.OnBusy(taskmw.Fail + 1) },
		"a negative policy":          func() { taskmw.OnBusy(-1) },
		"a nil fingerprint":          func() { taskmw.Fingerprint(nil) },
		"a fingerprint of a Lock":    func() { taskmw.Lock(l, "order", id, taskmw.Fingerprint(id)) },
		"no Once":                    func() { taskmw.Idempotent(nil, "order", id) },
		"no name of an Idempotent":   func() { taskmw.Idempotent(o, "", id) },
		"no key of an Idempotent":    func() { taskmw.Idempotent(o, "order", nil) },
		"a long name of a run":       func() { taskmw.Idempotent(o, strings.Repeat("x", 65), id) },
		"FailOpen of an Idempotent":  func() { taskmw.Idempotent(o, "order", id, taskmw.FailOpen()) },
		"Acquire of an Idempotent":   func() { taskmw.Idempotent(o, "order", id, taskmw.Acquire(core.TTL(1e9))) },
		"Also of an Idempotent":      func() { taskmw.Idempotent(o, "order", id, taskmw.Also(id)) },
		"an empty path":              func() { taskmw.Payload("") },
		"a path with an empty name":  func() { taskmw.Payload("a..b") },
		"a path of another language": func() { taskmw.Payload("$.id") },
		"an empty header":            func() { taskmw.Header("") },
		"a Join of nothing":          func() { taskmw.Join() },
		"a Join of nil":              func() { taskmw.Join(id, nil) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "taskmw: ") {
					t.Errorf("%s: recovered %q", name, text)
				}
			}()
			f()
		}()
	}
}

// TestHeader_NamesVersion checks that Header with an older asynq names the version that
// it needs. header_test.go has the cases for a newer asynq.
func TestHeader_NamesVersion(t *testing.T) {
	t.Parallel()
	_, has := any((*asynq.Task)(nil)).(interface{ Headers() map[string]string })
	defer func() {
		text, _ := recover().(string)
		if has != (text == "") || !has && !strings.HasPrefix(text, "taskmw: Header: tasks have headers since asynq v0.26.0") {
			t.Errorf("got %q, and tasks have headers: %v", text, has)
		}
	}()
	taskmw.Header("tenant")
}
