package interop_test

import (
	stdgzip "compress/gzip"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"

	"github.com/gin-contrib/gzip"
	"github.com/gin-gonic/gin"
)

const buffered = "whole buffer"

// outside lists the outer middlewares. Each of them, except "no middleware", replaces the
// writer and examines the response at a different time.
var outside = map[string]gin.HandlerFunc{
	"no middleware":       func(*gin.Context) {},
	"gzip of gin-contrib": gzip.Gzip(gzip.DefaultCompression),
	"ETag of a response": replace(func(w gin.ResponseWriter) (gin.ResponseWriter, func()) {
		return &tagging{ResponseWriter: w}, nil
	}),
	"signed response": replace(func(w gin.ResponseWriter) (gin.ResponseWriter, func()) {
		return &signing{ResponseWriter: w}, nil
	}),
	"early status": replace(func(w gin.ResponseWriter) (gin.ResponseWriter, func()) {
		return &early{w}, nil
	}),
	"own compression": replace(func(w gin.ResponseWriter) (gin.ResponseWriter, func()) {
		z := &zipping{ResponseWriter: w}
		return z, z.end
	}),
	buffered: replace(func(w gin.ResponseWriter) (gin.ResponseWriter, func()) {
		b := &buffering{ResponseWriter: w, status: w.Status()}
		return b, b.end
	}),
}

// replace returns a middleware that calls by and passes the writer inside to the inner
// handlers. Then it calls end, if end is not nil.
func replace(by func(w gin.ResponseWriter) (inside gin.ResponseWriter, end func())) gin.HandlerFunc {
	return func(c *gin.Context) {
		before := c.Writer
		inside, end := by(before)
		c.Writer = inside
		c.Next()
		if end != nil {
			end()
		}
		c.Writer = before
	}
}

// tagging sets an ETag at the first write, if the status is below 300 and nothing was
// written before.
type tagging struct {
	gin.ResponseWriter
}

func (w *tagging) Write(data []byte) (int, error) {
	if !w.Written() && w.Status() < http.StatusMultipleChoices {
		w.Header().Set("Etag", fmt.Sprintf(`"%x"`, sha256.Sum256(data)))
	}
	return w.ResponseWriter.Write(data)
}

func (w *tagging) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// signing signs the status, some headers and the first bytes, at the first write or flush
// or before the header is sent.
type signing struct {
	gin.ResponseWriter
	begun bool
}

func (w *signing) sign(how string, data []byte) {
	if w.begun {
		return
	}
	w.begun = true
	mac := hmac.New(sha256.New, []byte("secret"))
	h := w.Header()
	fmt.Fprintf(mac, "%d %q %q %q %t %q", w.Status(), h["Content-Type"], h["Content-Length"], h["Location"], w.Written(), data)
	h.Set("X-Signature", fmt.Sprintf("%s;%x", how, mac.Sum(nil)))
}

func (w *signing) Write(data []byte) (int, error) {
	w.sign("bytes", data)
	return w.ResponseWriter.Write(data)
}

func (w *signing) WriteString(s string) (int, error) {
	w.sign("text", []byte(s))
	return w.ResponseWriter.WriteString(s)
}

func (w *signing) WriteHeaderNow() {
	w.sign("header", nil)
	w.ResponseWriter.WriteHeaderNow()
}

func (w *signing) Flush() {
	w.sign("flush", nil)
	w.ResponseWriter.Flush()
}

// early records the status, Content-Type and Content-Length of each WriteHeader, and
// deletes Content-Length.
type early struct{ gin.ResponseWriter }

func (w *early) WriteHeader(status int) {
	h := w.Header()
	h.Add("X-Seen", fmt.Sprintf("%d %q %q", status, h["Content-Type"], h["Content-Length"]))
	h.Del("Content-Length")
	w.ResponseWriter.WriteHeader(status)
}

// zipping compresses a response whose first write is long, and sets the headers for
// that.
type zipping struct {
	gin.ResponseWriter
	zip   *stdgzip.Writer
	begun bool
}

func (w *zipping) Write(data []byte) (int, error) {
	if !w.begun {
		w.begun = true
		w.Header().Add("Vary", "Accept-Encoding")
		if !w.Written() && len(data) >= 100 && w.Header().Get("Content-Encoding") == "" {
			w.Header().Del("Content-Length")
			w.Header().Set("Content-Encoding", "gzip")
			w.zip = stdgzip.NewWriter(w.ResponseWriter)
		}
	}
	if w.zip != nil {
		return w.zip.Write(data)
	}
	return w.ResponseWriter.Write(data)
}

func (w *zipping) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *zipping) Flush() {
	if w.zip != nil {
		_ = w.zip.Flush()
	}
	w.ResponseWriter.Flush()
}

func (w *zipping) end() {
	if w.zip != nil {
		_ = w.zip.Close()
	}
}

// buffering sends the whole response when the handler has returned, with an ETag and a
// length if there is a body.
type buffering struct {
	gin.ResponseWriter
	status int
	body   []byte
	begun  bool
}

func (w *buffering) Status() int   { return w.status }
func (w *buffering) Written() bool { return w.begun }
func (w *buffering) Flush()        { w.begun = true }
func (w *buffering) WriteHeaderNow() {
	w.begun = true
}

func (w *buffering) Size() int {
	if !w.begun {
		return -1
	}
	return len(w.body)
}

func (w *buffering) WriteHeader(status int) {
	if status > 0 && !w.begun {
		w.status = status
	}
}

func (w *buffering) Write(data []byte) (int, error) {
	w.begun = true
	w.body = append(w.body, data...)
	return len(data), nil
}

func (w *buffering) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *buffering) end() {
	w.ResponseWriter.WriteHeader(w.status)
	if len(w.body) == 0 {
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(w.body)))
	w.Header().Set("Etag", fmt.Sprintf(`"%x"`, sha256.Sum256(w.body)))
	_, _ = w.ResponseWriter.Write(w.body)
}
