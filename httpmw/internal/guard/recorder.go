package guard

import (
	"bufio"
	"errors"
	"mime"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Recorder holds a response back until it is stored. A response that cannot be stored
// is sent to the client at once, as is all its later data. Such a response is hijacked,
// is a stream of events, follows a 1xx status, is longer than the limit (the field
// most), or is not complete within flushHold after its first flush.
//
// A Recorder is a Writer, so it fixes the status with the first byte and not before.
// The outer writer gets the same calls, but later.
type Recorder struct {
	Writer
	execution *execution
	most      int64
	shows     bool        // body is recorded for a KeepIf, even if it was sent
	before    http.Header // before the handler ran
	// header is the header that the handler sees and changes. The outer writer has a
	// separate map. The timer of a held flush can write while the handler sets a
	// header.
	header http.Header

	mu      sync.Mutex // guards the fields below, and each use of the outer writer
	log     calls
	few     [4]call     // room for the calls of most responses
	sent    http.Header // the header at the first write; later changes are not sent
	status  int
	chosen  bool   // the status was set
	size    int    // -1 before the first write, as in gin
	body    []byte // empty if passing, unless shows is set
	passing bool
	// announced is the Content-Length in the header at the first write, or -1 if there
	// is none.
	announced int64
	outside   int // the outer writer's own status, before the handler ran

	timer    *time.Timer // started by the first flush
	ended    bool        // the handler has returned or panicked
	kept     bool        // the response counts as stored
	panicked any         // the panic of the outer writer on the timer's goroutine
	hijacked bool
	sealed   bool // earlier data is committed, later data is ignored
}

func newRecorder(w Writer, most int64, shows bool) *Recorder {
	before := w.Header().Clone()
	if before == nil {
		before = http.Header{}
	}
	r := &Recorder{
		Writer: w, most: most, shows: shows, before: before, header: before.Clone(), log: calls{seen: before, most: maxCalls},
		status: w.Status(), size: -1, announced: -1, outside: w.Status(), passing: w.Written(),
	}
	r.log.list = r.few[:0]
	return r
}

func (w *Recorder) Unwrap() http.ResponseWriter { return w.Writer }

func (w *Recorder) Header() http.Header { return w.header }

// lock locks mu, on a goroutine of the handler. If the outer writer has panicked on the
// timer's goroutine, lock panics with the same value. A middleware can then recover the
// panic.
func (w *Recorder) lock() {
	w.mu.Lock()
	if p := w.panicked; p != nil {
		w.panicked = nil
		w.mu.Unlock()
		panic(p)
	}
}

func (w *Recorder) Status() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.passing {
		return w.Writer.Status()
	}
	return w.status
}

func (w *Recorder) Size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.passing {
		return w.Writer.Size()
	}
	return w.size
}

func (w *Recorder) Written() bool { return w.Size() >= 0 }

// WriteHeader sets the status; -1 leaves it unchanged, as in gin.
func (w *Recorder) WriteHeader(status int) {
	w.lock()
	defer w.mu.Unlock()
	if w.sealed {
		return
	}
	if !w.log.begun {
		w.look()
		if status > 0 {
			w.status, w.chosen = status, true
		}
	}
	if w.passing {
		w.Writer.WriteHeader(status)
		return
	}
	w.log.add(callStatus, status)
}

func (w *Recorder) WriteHeaderNow() {
	w.lock()
	defer w.mu.Unlock()
	if w.sealed {
		return
	}
	w.begin()
	if w.passing {
		w.Writer.WriteHeaderNow()
		return
	}
	w.log.add(callNow, 0)
}

func (w *Recorder) Write(data []byte) (int, error) {
	w.lock()
	defer w.mu.Unlock()
	if w.sealed {
		return len(data), nil
	}
	if pass, err := w.room(callWrite, len(data)); err != nil {
		return 0, err
	} else if pass {
		n, err := w.Writer.Write(data)
		w.body = append(w.body, data[:w.shownOf(n)]...)
		return n, err
	}
	w.body = append(w.body, data...)
	return len(data), nil
}

func (w *Recorder) WriteString(data string) (int, error) {
	w.lock()
	defer w.mu.Unlock()
	if w.sealed {
		return len(data), nil
	}
	if pass, err := w.room(callWriteString, len(data)); err != nil {
		return 0, err
	} else if pass {
		n, err := w.Writer.WriteString(data)
		w.body = append(w.body, data[:w.shownOf(n)]...)
		return n, err
	}
	w.body = append(w.body, data...)
	return len(data), nil
}

// Inform sends the header so far with an informational status, before the response.
func (w *Recorder) Inform(status int) {
	w.lock()
	defer w.mu.Unlock()
	if w.log.begun || w.sealed {
		return
	}
	w.look()
	w.send()
	w.Writer.WriteHeader(status)
}

var errHijackLate = errors.New("the response has begun, its connection cannot be hijacked")

func (w *Recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.lock()
	defer w.mu.Unlock()
	if !w.passing && w.size > 0 || w.sealed {
		return nil, nil, w.execution.pkg.wrap(errHijackLate)
	}
	w.send()
	conn, rw, err := w.Writer.Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}

// look records the handler's changes of the header. Until the handler has returned,
// look is not called after the first write. After that write a change of the header has
// no effect. The handler may then be setting a trailer while another of its goroutines
// flushes.
func (w *Recorder) look() {
	switch {
	case same(w.header, w.log.seen):
	case w.passing:
		seen := w.header.Clone()
		update(w.Writer.Header(), w.log.seen, seen)
		w.log.seen = seen
	default:
		w.log.addHeader(w.header.Clone())
	}
}

// begin fixes the status and the header, as the first write of a response does.
func (w *Recorder) begin() {
	if w.log.begun {
		return
	}
	w.look()
	w.log.begun = true
	if w.passing {
		return
	}
	w.size, w.sent = 0, w.log.seen
	if n, err := strconv.ParseInt(w.sent.Get("Content-Length"), 10, 64); err == nil {
		w.announced = n
	}
	media, _, _ := mime.ParseMediaType(w.sent.Get("Content-Type"))
	// These are events, or an informational status before the response.
	if media == "text/event-stream" || w.status < http.StatusOK {
		w.send()
	}
}

// room counts n more bytes of body. pass reports whether these bytes go directly to the
// outer writer.
func (w *Recorder) room(kind callKind, n int) (pass bool, err error) {
	w.begin()
	switch {
	case w.passing:
		return true, nil
	case n > 0 && !bodyAllowed(w.status):
		err = http.ErrBodyNotAllowed // the same error as in net/http
	case w.announced >= 0 && int64(n) > w.announced-int64(w.size):
		err = http.ErrContentLength // the same error as in net/http
	case int64(n) > w.most-int64(w.size):
		w.send()
		return true, nil
	}
	if err != nil {
		w.log.add(kind, 0) // the failed call still writes the header
		return false, err
	}
	w.size += n
	w.log.add(kind, n)
	return false, nil
}

// send makes the calls that were held back. Later calls go directly to the outer
// writer.
func (w *Recorder) send() {
	if w.passing {
		return
	}
	w.passing = true
	w.log.play(w.Writer, w.before, w.body)
	if !w.shows {
		w.body = nil
	}
}

// shownOf returns the number of bytes that a KeepIf gets, of n bytes that were sent.
func (w *Recorder) shownOf(n int) int {
	if !w.shows {
		return 0
	}
	return int(max(0, min(int64(n), w.most-int64(len(w.body)))))
}

// shown returns the response for a KeepIf. names are the headers that are stored.
func (w *Recorder) shown(names []string) Kept {
	w.mu.Lock()
	defer w.mu.Unlock()
	status, header := w.status, w.header
	switch {
	case w.passing:
		status, header = w.Writer.Status(), w.Writer.Header()
	case w.log.begun:
		header = w.sent
	}
	status = statusOf(status)
	_, ok := w.encoded(names)
	return Kept{
		Status: status, Header: header.Clone(), Body: w.body[:len(w.body):len(w.body)],
		Unreplayable: !ok, ByDefault: keeps(status),
	}
}

// pass sends the held response after the handler has returned.
func (w *Recorder) pass() {
	w.lock()
	defer w.mu.Unlock()
	w.send()
	if w.sealed {
		return
	}
	w.look() // for trailers, and for an outer writer that sends nothing before the handler returns
}

// yield gives up the recording if the handler has written to the outer writer directly.
// With gin's Engine.HandleContext the handler does so, because HandleContext restores the
// request's original writer.
func (w *Recorder) yield() {
	w.lock()
	defer w.mu.Unlock()
	if w.passing || w.sealed || !w.Writer.Written() && w.Writer.Status() == w.outside {
		return
	}
	if w.log.begun {
		w.send()
	}
	w.passing = true
}

// discard drops a response that is not sent yet, with its header, after a panic of the
// handler. The middleware that recovers the panic responds instead. If no response was
// begun, or if the response is already being sent, discard passes the handler's header
// to the outer writer.
func (w *Recorder) discard() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.passing || !w.log.begun && !w.sealed {
		w.send()
		w.look()
	}
}

// Missed notifies the observer if the framework begins a response after an empty
// response was stored. It is called before each write of a header or a body.
func (w *Recorder) Missed() {
	w.mu.Lock()
	late := w.kept && !w.log.begun && !w.sealed
	w.mu.Unlock()
	if late {
		w.execution.late()
	}
}

// bodyAllowed reports whether a response of this status has a body.
func bodyAllowed(status int) bool {
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}
