//go:build newest

package taskmw_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/taskmw"
)

// TestHeader needs an asynq whose tasks have headers. make newest runs it.
func TestHeader(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"tenant": "a:b", "Tenant": "c", "empty": ""}
	for _, c := range []struct {
		name  string
		key   taskmw.KeyFunc
		want  string // the key that is locked, or
		fault string // the text of the error
	}{
		{"a header", taskmw.Header("tenant"), "order:a%3Ab", ""},
		{"another case", taskmw.Header("Tenant"), "order:c", ""},
		{"a part of two", taskmw.Join(taskmw.Header("tenant"), taskmw.Payload("id")), "order:a%3Ab:42", ""},
		{"a missing header", taskmw.Header("TENANT"), "", `the header "TENANT" is missing`},
		{"an empty header", taskmw.Header("empty"), "", `the header "empty" is empty`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			task := asynq.NewTaskWithHeaders("order:pay", []byte(`{"id":42}`), headers)
			h := asynq.HandlerFunc(keyOf)
			if c.fault != "" {
				h = mustNotRun(t)
			}
			err := taskmw.Lock(memLocker(t), "order", c.key)(h).ProcessTask(t.Context(), task)
			if c.fault == "" {
				if err == nil || err.Error() != c.want {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			if !errors.Is(err, core.ErrInvalid) || !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("got %v, want ErrInvalid and SkipRetry with %q", err, c.fault)
			}
		})
	}
}
