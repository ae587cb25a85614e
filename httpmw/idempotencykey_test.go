package httpmw_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

func TestIdempotencyKey(t *testing.T) { onEach(t, testIdempotencyKey) }

func testIdempotencyKey(t *testing.T, mw framework) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		lines  []string
		want   string // the expected key, unless the request is refused
		detail string // the expected detail of the 400 of a refused request
	}{
		{name: "a bare key", lines: []string{"8e03978e-40d5-43e8-bc93-6894a57f9324"}, want: "8e03978e-40d5-43e8-bc93-6894a57f9324"},
		{name: "a quoted key", lines: []string{`"8e03978e"`}, want: "8e03978e"},
		{name: "blank inside quotes", lines: []string{`"order 42"`}, want: "order 42"},
		{name: "blanks at quotes", lines: []string{` " k " `}, want: " k "},
		{name: "a key with blanks around it", lines: []string{" \t\"k\" \t"}, want: "k"},

		{name: "blank without quotes", lines: []string{"order 42"}, detail: "contains something other than visible ASCII"},
		{name: "no key", detail: "is missing"},
		{name: "an empty header", lines: []string{""}, detail: "is empty"},
		{name: "a blank header", lines: []string{" \t"}, detail: "is empty"},
		{name: "two headers", lines: []string{"a", "b"}, detail: "is there more than once"},
		{name: "the same header twice", lines: []string{"a", "a"}, detail: "is there more than once"},
		{name: "a list", lines: []string{"a, b"}, detail: "is not one key"},
		{name: "a string without end", lines: []string{`"a`}, detail: "is not one quoted string"},
		{name: "a header of 4 KiB", lines: []string{strings.Repeat("x", 4096)}, detail: "is too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := guard.Package("httpmw").IdempotencyKey(http.Header{"Idempotency-Key": c.lines})
			if c.detail == "" && (got != c.want || err != nil) {
				t.Errorf("got %q, %v", got, err)
			}
			s, runs := mw.newSite(t), atomic.Int32{}
			s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), counted(&runs))
			var header []string
			for _, line := range c.lines {
				header = append(header, "Idempotency-Key", line)
			}
			first, again := s.send("POST", "/", "", header...), s.send("POST", "/", "", header...)
			if c.detail == "" {
				if first.body != "run 1" || again.body != "run 1" || !again.isReplay() {
					t.Errorf("got %d %q, then %d %q", first.status, first.body, again.status, again.body)
				}
				return
			}
			p := again.problem(t, http.StatusBadRequest)
			detail, _ := p["detail"].(string)
			if p["type"] != base+"idempotency-key-invalid" || !strings.Contains(detail, "Idempotency-Key header "+c.detail) {
				t.Errorf("got %v, want %q", p, c.detail)
			}
			if runs.Load() != 0 || again.header.Get("Retry-After") != "" || p["lock"] != nil {
				t.Errorf("%d ran; got %v", runs.Load(), again)
			}
		})
	}

	t.Run("quoted and bare key", func(t *testing.T) {
		t.Parallel()
		s, runs := mw.newSite(t), atomic.Int32{}
		s.POST("/", mw.Idempotent(s.runs(), mw.AnyCaller()), counted(&runs))
		for _, key := range []string{`"key-1"`, "key-1", " key-1 "} {
			if r := s.pay(key, "/", ""); r.body != "run 1" {
				t.Errorf("%s: got %d %q", key, r.status, r.body)
			}
		}
		if r := s.pay("KEY-1", "/", ""); r.body != "run 2" {
			t.Errorf("in another case it is another key: got %d %q", r.status, r.body)
		}
	})
}
