// Package guard is what httpmw and stdmw do with a request, on whatever
// framework: it finds the key, takes the lock or begins the run, runs what comes
// next, keeps and replays its answer, and refuses. A framework gives it the
// request as an Exchange, and does the rest.
package guard

import (
	"bufio"
	"context"
	"net"
	"net/http"
)

// Carrier is a request in which a key is looked for.
type Carrier interface {
	Request() *http.Request
	// Package is the one that the program uses.
	Package() Package
	// Limit is how much of the body may be read, in bytes.
	Limit() int64
	// Cached is a body that was read before and left with the framework, nil if
	// there is none; Cache leaves one there.
	Cached() []byte
	Cache(body []byte)
}

// Exchange is a request and its answer, with what comes after the middleware. It
// is used by one goroutine at a time.
type Exchange interface {
	Carrier
	SetLimit(n int64)

	// Under has what comes next see a copy of the request with ctx, after SetWriter;
	// SetRequest puts the request back.
	Under(ctx context.Context)
	SetRequest(r *http.Request)

	Writer() Writer
	SetWriter(w Writer)

	// Next runs what comes next, and Abort has it not run.
	Next()
	Abort()

	// Missed tells whether the request matches no route, so that the framework
	// has an answer of its own.
	Missed() bool

	// Errors are those that handlers have told so far.
	Errors() []error

	// Inside is the highest note that SetInside was given by a middleware of this
	// package inside of this one, 0 without any.
	Inside() int
	SetInside(note int)
}

// Writer is a writer that holds the status back until the header is written, by
// the first byte or by WriteHeaderNow. WriteHeader can be called before that as
// often as one likes. It has the methods of gin.ResponseWriter.
type Writer interface {
	http.ResponseWriter
	http.Flusher
	Hijack() (net.Conn, *bufio.ReadWriter, error)
	CloseNotify() <-chan bool
	Pusher() http.Pusher
	WriteString(data string) (int, error)
	WriteHeaderNow()

	Status() int
	// Size is the length of what was written, -1 before the header was.
	Size() int
	Written() bool
}
