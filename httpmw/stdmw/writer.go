package stdmw

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/lockkit/lockkit/httpmw/internal/guard"
)

// outside is a guard.Writer that writes to the writer of the middleware. It holds the
// status back until the header is written. If no handler has chosen a status, the
// wrapped writer chooses the status.
type outside struct {
	http.ResponseWriter
	status int
	chosen bool
	size   int // -1 before the header is written
}

func (w *outside) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *outside) Status() int   { return w.status }
func (w *outside) Size() int     { return w.size }
func (w *outside) Written() bool { return w.size >= 0 }

func (w *outside) WriteHeader(status int) {
	switch {
	case w.Written() || status <= 0:
		// In a response that httpmw has stored, -1 leaves the status unchanged.
	case informs(status):
		w.ResponseWriter.WriteHeader(status)
	default:
		w.status, w.chosen = status, true
	}
}

func (w *outside) WriteHeaderNow() {
	if !w.Written() {
		w.size = 0
		w.ResponseWriter.WriteHeader(w.status)
	}
}

// begin writes the header, if a status was chosen.
func (w *outside) begin() {
	if w.chosen {
		w.WriteHeaderNow()
	}
	w.size = max(w.size, 0)
}

// end writes a status that was chosen and that no write has sent yet.
func (w *outside) end() {
	if w.chosen {
		w.WriteHeaderNow()
	}
}

func (w *outside) Write(data []byte) (int, error) {
	w.begin()
	n, err := w.ResponseWriter.Write(data)
	w.size += n
	return n, err
}

func (w *outside) WriteString(data string) (int, error) {
	w.begin()
	n, err := io.WriteString(w.ResponseWriter, data)
	w.size += n
	return n, err
}

func (w *outside) Flush() {
	w.begin()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *outside) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.size = max(w.size, 0)
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

func (w *outside) CloseNotify() <-chan bool {
	if n, ok := innermost(w).(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return nil
}

func (w *outside) Pusher() http.Pusher {
	p, _ := innermost(w).(http.Pusher)
	return p
}

// Late makes an outer Idempotent send the response that it holds back. It is called
// after the inner Idempotent has sent the response.
func (w *outside) Late() {
	if rec := w.recorder(); rec != nil {
		rec.Late()
	}
}

// recorder returns the Recorder of the next outer Idempotent to which w writes, or nil
// if there is none or a writer in between does not unwrap.
func (w *outside) recorder() *guard.Recorder {
	for wraps := unwrapper(w); ; {
		next := wraps.Unwrap()
		if in, recorded := next.(*inside); recorded {
			return in.rec
		}
		var more bool
		if wraps, more = next.(unwrapper); !more {
			return nil
		}
	}
}

// inside adapts a guard.Recorder to net/http: WriteHeader writes the header at once,
// and does not only set the status.
type inside struct{ rec *guard.Recorder }

func (w *inside) Unwrap() http.ResponseWriter { return w.rec.Unwrap() }
func (w *inside) Header() http.Header         { return w.rec.Header() }
func (w *inside) Flush()                      { _ = w.FlushError() }
func (w *inside) CloseNotify() <-chan bool    { return w.rec.CloseNotify() }

func (w *inside) Write(data []byte) (int, error) {
	w.rec.Missed()
	return w.rec.Write(data)
}

func (w *inside) WriteString(data string) (int, error) {
	w.rec.Missed()
	return w.rec.WriteString(data)
}

func (w *inside) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // net/http panics too
	case informs(status):
		w.rec.Inform(status)
	case !w.rec.Written():
		w.rec.Missed()
		w.rec.WriteHeader(status)
		w.rec.WriteHeaderNow()
	}
}

func (w *inside) FlushError() error {
	switch innermost(w).(type) {
	case http.Flusher, interface{ FlushError() error }:
		w.rec.Flush()
		return nil
	}
	return http.ErrNotSupported
}

func (w *inside) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if _, ok := innermost(w).(http.Hijacker); !ok {
		return nil, nil, http.ErrNotSupported
	}
	return w.rec.Hijack()
}

func (w *inside) Push(target string, opts *http.PushOptions) error {
	if p := w.rec.Pusher(); p != nil {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}

// informs reports whether status is informational, which means that the response's
// final status follows later.
func informs(status int) bool {
	return status < http.StatusOK && status != http.StatusSwitchingProtocols
}

// innermost returns the server's writer, which the other writers wrap. Only the methods
// of the server's writer show which features work.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		outer, wraps := w.(unwrapper)
		if !wraps {
			return w
		}
		w = outer.Unwrap()
	}
}

type unwrapper interface{ Unwrap() http.ResponseWriter }
