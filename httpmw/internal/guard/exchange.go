// Package guard implements httpmw and stdmw for requests of any framework. It finds the
// key, acquires the lock or begins the run, runs the inner handlers, stores and replays
// the response, and refuses. A framework passes a request as an Exchange, and does the
// rest.
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
	// Package returns the package that the program uses.
	Package() Package
	// Limit returns the length of the longest body that may be read, in bytes.
	Limit() int64
	// Cached returns a body that was read before and left with the framework, or nil.
	// Cache leaves one there.
	Cached() []byte
	Cache(body []byte)
}

// Exchange is a request and its response, with the inner handlers. One goroutine at a
// time uses it.
type Exchange interface {
	Carrier
	SetLimit(n int64)

	// Under gives the inner handlers a copy of the request with ctx, after SetWriter;
	// SetRequest puts the request back.
	Under(ctx context.Context)
	SetRequest(r *http.Request)

	Writer() Writer
	SetWriter(w Writer)

	// Next runs the inner handlers, and Abort prevents that.
	Next()
	Abort()

	// Missed reports whether the request matches no route, so that the framework has a
	// response of its own.
	Missed() bool

	// Errors returns the errors that handlers have reported so far.
	Errors() []error

	// Inside returns the highest note that an inner middleware of this package gave to
	// SetInside, or 0.
	Inside() int
	SetInside(note int)
}

// Writer is a writer that holds the status back until the header is written, by the
// first byte or by WriteHeaderNow. WriteHeader can be called any number of times before
// that. It has the methods of gin.ResponseWriter.
type Writer interface {
	http.ResponseWriter
	http.Flusher
	Hijack() (net.Conn, *bufio.ReadWriter, error)
	CloseNotify() <-chan bool
	Pusher() http.Pusher
	WriteString(data string) (int, error)
	WriteHeaderNow()

	Status() int
	// Size returns the length of what was written, or -1 before the header was.
	Size() int
	Written() bool
}
