package redistest

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// Match selects commands. What is empty matches every command.
type Match struct {
	Command string // the command's name, in any case
	Script  string // "acquire", "extend" or "release": a call of the store's script, by name or by text, or a SET NX
	Arg     string // part of any argument
	Skip    int    // how many matching commands to let pass first
	Times   int    // how many commands the fault befalls; 0 means 1, -1 all
}

// matches tells whether f is a command that m selects.
func (m Match) matches(f *frame) bool {
	if m.Command != "" && !strings.EqualFold(m.Command, f.word()) {
		return false
	}
	if m.Script != "" && m.Script != scriptName(f) {
		return false
	}
	if m.Arg == "" {
		return true
	}
	for _, a := range f.args[min(1, len(f.args)):] {
		if strings.Contains(a, m.Arg) {
			return true
		}
	}
	return false
}

// scriptName is the name of the store's script that f calls, or "". It is the
// first word of the first argument after the key. A SET NX stands for an acquire
// of a plain key.
func scriptName(f *frame) string {
	if len(f.args) == 6 && f.word() == "set" && f.args[3] == "nx" {
		return "acquire"
	}
	if w := f.word(); len(f.args) < 5 || w != "evalsha" && w != "eval" || f.args[2] != "1" {
		return ""
	}
	switch name, _, _ := strings.Cut(f.args[4], " "); name {
	case "acquire", "extend", "release":
		return name
	}
	return ""
}

// Action is what happens to a command.
type Action struct {
	name string
	text string // of an error reply
}

// The actions. A command that is lost takes its connection along, as a network
// would do: after it nothing passes there.
var (
	DropRequest    = Action{name: "drop request"}    // the server does not get it, and the connection falls silent
	CloseRequest   = Action{name: "close request"}   // the server does not get it, and the connection is closed
	DropReply      = Action{name: "drop reply"}      // the server does it, and the connection falls silent
	CloseReply     = Action{name: "close reply"}     // the server does it, and the connection is closed instead of a reply
	HoldRequest    = Action{name: "hold request"}    // the server gets it after Fault.Deliver, and what follows on the connection too
	HoldReply      = Action{name: "hold reply"}      // the client gets its reply after Fault.Deliver
	DoubleRequest  = Action{name: "double request"}  // the server gets it twice, the client the first reply
	GarbageReply   = Action{name: "garbage reply"}   // the server does it, and the client gets what is not RESP
	UnrelatedReply = Action{name: "unrelated reply"} // the server does it, and the client gets a reply of another shape
)

// ErrorReply has the client get an error instead of the server the command.
func ErrorReply(text string) Action { return Action{name: "error reply", text: text} }

// Fault is an action that awaits its command.
type Fault struct {
	match  Match
	action Action
	fired  chan struct{} // closed at the first time
	free   chan struct{} // closed by Deliver
	done   chan struct{} // closed when the server has answered the command
	once   sync.Once
	ended  sync.Once

	// Under the proxy's mutex.
	seen  int
	times int
}

// take tells whether the fault befalls this command, which matches.
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

// Fired is closed when the fault has befallen its first command.
func (f *Fault) Fired() <-chan struct{} { return f.fired }

// Answered is closed when the server has done the first command that the fault
// has befallen, whether the client is told or not; of a doubled one, the second
// time. It never is for an action that keeps the command from the server.
func (f *Fault) Answered() <-chan struct{} { return f.done }

func (f *Fault) answered() { f.ended.Do(func() { close(f.done) }) }

// Await fails the test if the fault does not fire soon.
func (f *Fault) Await(t testing.TB) {
	t.Helper()
	select {
	case <-f.fired:
	case <-time.After(20 * time.Second):
		t.Fatalf("redistest: no command came for the fault %q on %+v", f.action.name, f.match)
	}
}

// Deliver lets go what the fault holds, now and from now on.
func (f *Fault) Deliver() { f.once.Do(func() { close(f.free) }) }
