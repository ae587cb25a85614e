// Package guard implements httpmw and stdmw for requests of any framework. It finds the
// key, acquires the lock or begins the run, and runs the inner handlers. It stores and
// replays responses, and refuses requests. httpmw and stdmw implement Exchange for the
// requests of their framework.
package guard

import (
	"bufio"
	"context"
	"net"
	"net/http"
)

// Carrier is a request in which a KeyFunc finds a key.
type Carrier interface {
	Request() *http.Request
	// Package returns the package that the program uses.
	Package() Package
	// Limit returns the maximum length of a body that may be read, in bytes.
	Limit() int64
	// Cache stores body in the framework. Cached returns the stored body, or nil.
	Cached() []byte
	Cache(body []byte)
}

// Exchange is a request and its response, with the inner handlers. It is not safe for
// concurrent use.
type Exchange interface {
	Carrier
	SetLimit(n int64)

	// Under gives the inner handlers a copy of the request with ctx. A caller of
	// SetWriter calls Under afterwards. SetRequest restores the request.
	Under(ctx context.Context)
	SetRequest(r *http.Request)

	Writer() Writer
	SetWriter(w Writer)

	// Next runs the inner handlers. Abort prevents the framework from running them.
	Next()
	Abort()

	// Missed reports whether the request matches no route. The framework responds to
	// such a request itself.
	Missed() bool

	// Errors returns the errors that handlers have reported so far.
	Errors() []error

	// Inside returns the note of inner middlewares of this package. GiveUp and Refuse
	// leave it for an outer Idempotent.
	Inside() Note
	GiveUp()
	Refuse(r Refusal)
}

// Writer holds the status back until the header is written, by the first byte or by
// WriteHeaderNow. Before that, WriteHeader can be called any number of times. Writer
// has the methods of gin.ResponseWriter.
type Writer interface {
	http.ResponseWriter
	http.Flusher
	Hijack() (net.Conn, *bufio.ReadWriter, error)
	CloseNotify() <-chan bool
	Pusher() http.Pusher
	WriteString(data string) (int, error)
	WriteHeaderNow()

	Status() int
	// Size returns the length of the written body, or -1 before the header is written.
	Size() int
	Written() bool
}
