package interop_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/httpmw"
)

// tape records all calls. If a call finds that the header is not written yet, tape also
// records the header, without Idempotent-Replayed.
type tape struct {
	gin.ResponseWriter
	calls []string
}

func (w *tape) note(format string, args ...any) {
	call := fmt.Sprintf(format, args...)
	if !w.Written() {
		h := w.Header().Clone()
		h.Del("Idempotent-Replayed")
		call += fmt.Sprint(" ", h)
	}
	w.calls = append(w.calls, call)
}

func (w *tape) WriteHeader(status int) {
	w.note("status %d", status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *tape) WriteHeaderNow() {
	w.note("header")
	w.ResponseWriter.WriteHeaderNow()
}

func (w *tape) Write(data []byte) (int, error) {
	w.note("bytes %.20q, %d in all", data, len(data))
	return w.ResponseWriter.Write(data)
}

func (w *tape) WriteString(s string) (int, error) {
	w.note("text %.20q, %d in all", s, len(s))
	return w.ResponseWriter.WriteString(s)
}

func (w *tape) Flush() {
	w.note("flush")
	w.ResponseWriter.Flush()
}

func TestCalls_OuterWriter(t *testing.T) {
	t.Parallel()
	for kind, answer := range answers {
		if kind == "very many pieces" {
			continue // more calls than the kit distinguishes
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			tapes := make(chan string, 1)
			s := newSite(t, func(c *gin.Context) {
				w := &tape{ResponseWriter: c.Writer}
				c.Writer = w
				c.Next()
				c.Writer = w.ResponseWriter
				tapes <- strings.Join(w.calls, "\n")
			})
			s.POST("/bare", answer)
			s.POST("/once", httpmw.Idempotent(s.once, httpmw.AnyCaller(), ofNetHTTP), answer)
			s.post("/bare", "")
			bare := <-tapes
			s.post("/once", "", "Idempotency-Key", "k")
			if got := <-tapes; got != bare {
				t.Errorf("the first answer:\n%s\nwant\n%s", got, bare)
			}
			again := s.post("/once", "", "Idempotency-Key", "k")
			got := <-tapes
			switch _, gone := notKept[kind]; {
			case gone:
			case again.header.Get("Idempotent-Replayed") != "true":
				t.Errorf("asked again, got %d, and no replay", again.status)
			case got != bare && !strings.Contains(kind, "flush"): // a replay is not flushed
				t.Errorf("the replay:\n%s\nwant\n%s", got, bare)
			}
		})
	}
}
