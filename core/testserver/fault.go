package testserver

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds the waits of a fault and its test.
const patience = 20 * time.Second

// Action is the effect on a request. Actions can be compared.
type Action struct {
	kind kind
	text string // an answer in place of the server's
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

// The actions. A request that is lost takes its connection along, as in a network:
// after it nothing passes there.
var (
	Pass          = Action{}                    // nothing
	DropRequest   = Action{kind: dropRequest}   // the server does not get it, and the connection falls silent
	CloseRequest  = Action{kind: closeRequest}  // the server does not get it, and the connection is closed
	DropReply     = Action{kind: dropReply}     // the server does it, and the connection falls silent
	CloseReply    = Action{kind: closeReply}    // the server does it, and the connection is closed instead of a reply
	HoldRequest   = Action{kind: holdRequest}   // the server gets it after Fault.Deliver, and what follows on the connection too
	HoldReply     = Action{kind: holdReply}     // the client gets its reply after Fault.Deliver
	DoubleRequest = Action{kind: doubleRequest} // the server gets it twice, the client the first reply
	CutReply      = Action{kind: cutReply}      // the server does it, and the client gets half of the reply before a close

	// GarbageReply and UnrelatedReply are for Redis.
	GarbageReply   = Action{replaceReply, "?what\r\n"}          // the server does it, and the client gets what is not RESP
	UnrelatedReply = Action{replaceReply, "*1\r\n*1\r\n:1\r\n"} // the server does it, and the client gets a reply of another shape
)

// ErrorReply returns an action by which a client of Redis gets an error instead of the
// server the command.
func ErrorReply(text string) Action {
	return Action{replaceRequest, "-" + strings.ReplaceAll(text, "\r\n", " ") + "\r\n"}
}

// Fault is an action that awaits its request. It is safe for concurrent use.
type Fault struct {
	match  Match
	action Action
	fired  chan struct{} // closed at the first time
	free   chan struct{} // closed by Deliver
	done   chan struct{} // closed when the server has answered the request
	once   sync.Once
	ended  sync.Once

	// Under the proxy's mutex.
	seen  int
	times int
}

func newFault(m Match, a Action) *Fault {
	return &Fault{match: m, action: a, fired: make(chan struct{}), free: make(chan struct{}), done: make(chan struct{})}
}

// take reports whether the fault hits this request, which matches.
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

// Answered returns a channel that is closed when the server has done the first request
// that the fault has hit, whether the client gets the reply or not. For a doubled
// request that is the second time. The channel is never closed for an action that keeps
// the request from the server.
func (f *Fault) Answered() <-chan struct{} { return f.done }

func (f *Fault) answered() { f.ended.Do(func() { close(f.done) }) }

// Await waits until the fault has hit a request, and fails the test if it has not
// within 20 seconds.
func (f *Fault) Await(t testing.TB) {
	t.Helper()
	f.await(t, f.fired, "no request came for it")
}

// AwaitAnswer waits until Answered, and fails the test after 20 seconds.
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

// Deliver releases the messages that the fault holds, now and from now on. It does not
// wait for an answer.
func (f *Fault) Deliver() { f.once.Do(func() { close(f.free) }) }
