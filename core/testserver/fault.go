package testserver

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience limits the wait for a fault, and the time of a test's SQL statement.
const patience = 20 * time.Second

// Action is the treatment of a request by the proxy. Actions can be compared.
type Action struct {
	kind kind
	text string // the reply that replaces the server's reply
}

type kind int

const (
	pass kind = iota
	dropRequest
	closeRequest
	dropReply
	closeReply
	holdRequest
	holdReply
	doubleRequest
	replaceRequest
	replaceReply
	cutReply
)

func (k kind) String() string {
	return []string{
		"pass", "drop request", "close request", "drop reply", "close reply", "hold request", "hold reply",
		"double request", "replace request", "replace reply", "cut reply",
	}[k]
}

// These are the actions. As in a network, a lost request or reply breaks its
// connection. Later messages on the connection are lost too.
var (
	Pass          = Action{}                    // no effect
	DropRequest   = Action{kind: dropRequest}   // request lost, connection silent from then on
	CloseRequest  = Action{kind: closeRequest}  // request lost, and the connection closed
	DropReply     = Action{kind: dropReply}     // executed; the connection is silent from then on
	CloseReply    = Action{kind: closeReply}    // executed; connection closed without a reply
	HoldRequest   = Action{kind: holdRequest}   // sent, with later requests, after Fault.Deliver
	HoldReply     = Action{kind: holdReply}     // executed; the reply is sent after Fault.Deliver
	DoubleRequest = Action{kind: doubleRequest} // executed twice; the client gets the first reply
	CutReply      = Action{kind: cutReply}      // executed; closed after half the reply

	// GarbageReply and UnrelatedReply replace a reply of Redis.
	GarbageReply   = Action{replaceReply, "?what\r\n"}          // executed; the reply is not RESP
	UnrelatedReply = Action{replaceReply, "*1\r\n*1\r\n:1\r\n"} // executed; a reply of another form
)

// ErrorReply returns an action for Redis. The client receives the error text, and the
// server does not receive the command.
func ErrorReply(text string) Action {
	return Action{replaceRequest, "-" + strings.ReplaceAll(text, "\r\n", " ") + "\r\n"}
}

// Fault is an injected action. It acts on the requests that its Match selects. It is
// safe for concurrent use.
type Fault struct {
	match  Match
	action Action
	fired  chan struct{} // closed at the first hit
	free   chan struct{} // closed by Deliver
	done   chan struct{} // closed when the server has answered the first request that was hit
	once   sync.Once
	ended  sync.Once

	// The proxy's mutex guards these fields.
	seen  int
	times int
}

func newFault(m Match, a Action) *Fault {
	return &Fault{match: m, action: a, fired: make(chan struct{}), free: make(chan struct{}), done: make(chan struct{})}
}

// take counts a request that the fault's Match selects, and reports whether the fault
// hits it.
func (f *Fault) take() bool {
	f.seen++
	most := f.match.Times
	if most == 0 {
		most = 1
	}
	if f.seen <= f.match.Skip || most > 0 && f.times >= most {
		return false
	}
	f.times++
	if f.times == 1 {
		close(f.fired)
	}
	return true
}

// Fired returns a channel that is closed when the fault has hit its first request.
func (f *Fault) Fired() <-chan struct{} { return f.fired }

// Answered returns a channel that is closed when the server has executed the first
// request that the fault has hit. The client may not receive the reply. A doubled
// request counts when the server has executed it twice. The channel is never closed for
// an action that keeps the request from the server.
func (f *Fault) Answered() <-chan struct{} { return f.done }

func (f *Fault) answered() { f.ended.Do(func() { close(f.done) }) }

// Await waits until the fault has hit a request. It fails the test after 20 seconds.
func (f *Fault) Await(t testing.TB) {
	t.Helper()
	f.await(t, f.fired, "no request came for it")
}

// AwaitAnswer waits until the channel of Answered is closed. It fails the test after 20
// seconds.
func (f *Fault) AwaitAnswer(t testing.TB) {
	t.Helper()
	f.await(t, f.done, "the server did not answer")
}

func (f *Fault) await(t testing.TB, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("testserver: fault %q on %s: %s", f.action.kind, fmt.Sprintf("%+v", f.match), what)
	}
}

// Deliver releases all messages that the fault holds. Later messages are not held.
// Deliver does not wait for an answer.
func (f *Fault) Deliver() { f.once.Do(func() { close(f.free) }) }
