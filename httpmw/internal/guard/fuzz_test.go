package guard_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// keyOf reads the key from this line of the header.
func keyOf(line string) (string, error) {
	return guard.IdempotencyKey(http.Header{"Idempotency-Key": {line}})
}

// Whatever a client sends as a key is refused, or is one that can be written in
// both ways.
func FuzzIdempotencyKey(f *testing.F) {
	f.Fuzz(func(t *testing.T, line string) {
		key, err := keyOf(line)
		if err != nil {
			if key != "" || !errors.Is(err, core.ErrInvalid) {
				t.Fatalf("%q gives %q, %v", line, key, err)
			}
			return
		}
		if len(key) == 0 || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q gives %q", line, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := keyOf(quoted); again != key || err != nil {
			t.Fatalf("%q gives %q, but %q gives %q, %v", line, key, quoted, again, err)
		}
		if bare := strings.Trim(line, " \t"); !strings.HasPrefix(bare, `"`) && key != bare {
			t.Fatalf("%q gives %q", line, key)
		}
	})
}

// Whatever the store gives back is refused, or an answer that is written as it
// was read.
func FuzzAnswer(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		again, err := guard.RewriteAnswer(data)
		if err != nil {
			return
		}
		if len(again) > len(data) {
			t.Fatalf("%q was read as %q", data, again)
		}
		if third, err := guard.RewriteAnswer(again); err != nil || !bytes.Equal(third, again) {
			t.Fatalf("%q was read as %q, and that as %q, %v", data, again, third, err)
		}
	})
}

// Whatever the store gives back as the way in which an answer was written, the
// answer is given whole.
func FuzzReplay(f *testing.F) {
	f.Add(200, "paid", "")
	f.Add(200, "paid", "\x01\xc9\x01\x00\x01\x00\x02\x03\x05")     // status, two headers, a write
	f.Add(200, "paid", "\x00\x01\x00\x02\x02\x01\x03\x03\x04\x03") // two headers, the header now, two pieces
	f.Add(200, "paid", "\x01\x05\x00\x01\x00\x02\x03\x05")         // status 4
	f.Add(404, "paid", "\x01\x00\x00\x01\x00\x01\x03\x09")
	f.Add(404, "", "\x02\x01\x00\x01\x00\x02\x01\x94\x03\xff")
	engine := gin.New()
	f.Fuzz(func(t *testing.T, status int, body, note string) {
		if status < 200 || status > 999 {
			return
		}
		w := httptest.NewRecorder()
		c := gin.CreateTestContextOnly(w, engine)
		want, text, err := guard.ReplayAnswer(c.Writer, guard.NotedAnswer(status, body, note))
		if err != nil {
			t.Fatal(err)
		}
		c.Writer.WriteHeaderNow() // as gin does in the end
		if got := w.Body.Bytes(); w.Code != want || !bytes.Equal(got, text) || w.Header().Get("Content-Type") != "text/plain" {
			t.Fatalf("%d %q is given as %d %q %v", want, text, w.Code, got, w.Header())
		}
	})
}
