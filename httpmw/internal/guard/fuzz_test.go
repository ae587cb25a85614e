package guard_test

import (
	"bytes"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// FuzzAnswer checks that a stored value is refused, or decodes to a response. The
// encoding of the response is not longer than the value, and decodes to the same
// response.
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

// FuzzReplay checks that a stored response with any note of its calls is replayed
// completely.
func FuzzReplay(f *testing.F) {
	f.Add(200, "paid", "")
	f.Add(200, "paid", "\x01\xc9\x01\x00\x01\x00\x02\x03\x05") // status, two headers, a write
	// Two headers, the header now, two pieces.
	f.Add(200, "paid", "\x00\x01\x00\x02\x02\x01\x03\x03\x04\x03")
	f.Add(200, "paid", "\x01\x05\x00\x01\x00\x02\x03\x05") // status 4
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
		c.Writer.WriteHeaderNow() // gin does the same at the end
		if got := w.Body.Bytes(); w.Code != want || !bytes.Equal(got, text) || w.Header().Get("Content-Type") != "text/plain" {
			t.Fatalf("%d %q is given as %d %q %v", want, text, w.Code, got, w.Header())
		}
	})
}
