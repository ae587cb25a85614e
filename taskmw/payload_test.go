package taskmw_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/taskmw"
)

func TestPayload(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		path    string
		payload string
		want    string // the value, or
		fault   string // the text of the error
	}{
		{"an integer", "id", `{"x":[1,{"id":2}],"id":42}`, "42", ""},
		{"a nested string", "order.ref.id", `{"id":1,"order":{"id":2,"ref":{"id":"a:b"}}}`, "a:b", ""},
		{"nested field of a missing object", "order.id", `{"id":1}`, "", `taskmw: the payload field "order" is missing`},
		{"field repeated in another case", "id", `{"id":1,"Id":2}`, "", `the payload field "id" is there more than once`},
		{"string with the separator", "id", `{"id":"a\u001fb"}`, "", "contains a control character"},
		{"an empty payload", "id", "", "", "taskmw: the payload is not valid JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := taskmw.Payload(c.path)(t.Context(), asynq.NewTask("x", []byte(c.payload)))
			if c.fault == "" {
				if got != c.want || err != nil {
					t.Errorf("got %q, %v; want %q", got, err, c.want)
				}
				return
			}
			if got != "" || !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("got %q, %v; want ErrInvalid that says %q", got, err, c.fault)
			}
		})
	}
}
