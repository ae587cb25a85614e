package httpmw

import (
	"bufio"
	"errors"
	"maps"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
)

// recorder holds an answer back until it was saved. What cannot be kept goes on
// to the client at once, and from there on everything does: an answer that is
// flushed, hijacked, a stream of events, or longer than most.
//
// To what runs inside, it looks as gin's own writer does, which writes a status
// with the first byte and not before.
type recorder struct {
	gin.ResponseWriter
	most   int64
	before http.Header // before the handler ran
	sent   http.Header // as of the first write; what is set later is not sent
	status int
	chosen bool // the status was set
	size   int  // -1 before the first write, as gin has it
	body   []byte
	// announced is the Content-Length that was sent, -1 if there is none.
	announced int64
	outside   int // the writer's own status, before the handler ran

	passing, hijacked bool
}

func newRecorder(w gin.ResponseWriter, most int64) *recorder {
	return &recorder{
		ResponseWriter: w, most: most, before: w.Header().Clone(),
		status: w.Status(), size: -1, announced: -1, outside: w.Status(), passing: w.Written(),
	}
}

func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) Status() int {
	if w.passing {
		return w.ResponseWriter.Status()
	}
	return w.status
}

func (w *recorder) Size() int {
	if w.passing {
		return w.ResponseWriter.Size()
	}
	return w.size
}

func (w *recorder) Written() bool { return w.Size() >= 0 }

// WriteHeader sets the status; gin calls it with -1 for "leave it".
func (w *recorder) WriteHeader(status int) {
	switch {
	case w.passing:
		w.ResponseWriter.WriteHeader(status)
	case status > 0 && w.size < 0:
		w.status, w.chosen = status, true
	}
}

func (w *recorder) WriteHeaderNow() {
	w.begin()
	if w.passing {
		w.ResponseWriter.WriteHeaderNow()
	}
}

func (w *recorder) Write(data []byte) (int, error) {
	if pass, err := w.room(len(data)); err != nil {
		return 0, err
	} else if pass {
		return w.ResponseWriter.Write(data)
	}
	w.body = append(w.body, data...)
	return len(data), nil
}

func (w *recorder) WriteString(data string) (int, error) {
	if pass, err := w.room(len(data)); err != nil {
		return 0, err
	} else if pass {
		return w.ResponseWriter.WriteString(data)
	}
	w.body = append(w.body, data...)
	return len(data), nil
}

func (w *recorder) Flush() {
	w.begin()
	w.pass()
	w.ResponseWriter.Flush()
}

var errHijackLate = errors.New("httpmw: the answer was begun, its connection cannot be hijacked")

func (w *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !w.passing && w.size > 0 {
		return nil, nil, errHijackLate
	}
	w.pass()
	conn, rw, err := w.ResponseWriter.Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

// begin fixes status and header, as the first write does.
func (w *recorder) begin() {
	if w.passing || w.size >= 0 {
		return
	}
	w.size, w.sent = 0, w.Header().Clone()
	if n, err := strconv.ParseInt(w.sent.Get("Content-Length"), 10, 64); err == nil {
		w.announced = n
	}
	media, _, _ := mime.ParseMediaType(w.sent.Get("Content-Type"))
	if media == "text/event-stream" || w.status < http.StatusOK { // events, or what comes before the answer
		w.pass()
	}
}

// room counts n more bytes of body, or tells to pass them on.
func (w *recorder) room(n int) (pass bool, err error) {
	w.begin()
	switch {
	case w.passing:
		return true, nil
	case n > 0 && !bodyAllowed(w.status):
		return false, http.ErrBodyNotAllowed // as net/http says
	case w.announced >= 0 && int64(n) > w.announced-int64(w.size):
		return false, http.ErrContentLength // as well
	case int64(n) > w.most-int64(w.size):
		w.pass()
		return true, nil
	}
	w.size += n
	return false, nil
}

// pass sends what was held back, and has everything else go the same way.
func (w *recorder) pass() {
	if w.passing {
		return
	}
	w.passing = true
	if w.chosen {
		w.ResponseWriter.WriteHeader(w.status)
	}
	if w.size < 0 {
		return // nothing is written; gin does that in the end
	}
	w.dropLate()
	w.ResponseWriter.WriteHeaderNow()
	if len(w.body) > 0 {
		_, _ = w.ResponseWriter.Write(w.body)
	}
}

// yield has an answer stand that was given past the recorder: gin's
// Engine.HandleContext goes back to the writer that the request came with.
func (w *recorder) yield() {
	if w.passing || !w.ResponseWriter.Written() && w.ResponseWriter.Status() == w.outside {
		return
	}
	if w.size >= 0 {
		w.pass()
	}
	w.passing = true
}

// dropLate takes back what was done to the header after the first write, but
// for trailers.
func (w *recorder) dropLate() {
	h, announced := w.Header(), strings.Join(w.sent["Trailer"], ",")
	for name := range h {
		if _, ok := w.sent[name]; !ok && !strings.HasPrefix(name, http.TrailerPrefix) && !lists(announced, name) {
			delete(h, name)
		}
	}
	for name, values := range w.sent {
		if !lists(announced, name) {
			h[name] = values
		}
	}
}

// lists tells whether the comma-separated names have name, in any case.
func lists(names, name string) bool {
	for n := range strings.SplitSeq(names, ",") {
		if strings.EqualFold(strings.TrimSpace(n), name) {
			return true
		}
	}
	return false
}

// discard forgets an answer of which nothing was sent, with its header: that of
// a handler that panicked. The answer is then gin.Recovery's.
func (w *recorder) discard() {
	if w.passing || w.size < 0 {
		return
	}
	clear(w.Header())
	maps.Copy(w.Header(), w.before)
}

// answer is what was held back. It is not whole if it is not as long as it says.
func (w *recorder) answer(headers []string) (a answer, whole bool) {
	a = answer{status: w.status, written: w.size >= 0, body: w.body}
	after := w.sent
	if !a.written {
		after = w.Header()
	}
	a.header = changed(w.before, after, headers)
	length := after.Get("Content-Length")
	return a, length == "" || !a.written || !bodyAllowed(a.status) || length == strconv.Itoa(len(a.body))
}

// bodyAllowed tells whether an answer of this status has a body.
func bodyAllowed(status int) bool {
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}
