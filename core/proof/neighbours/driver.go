package neighbours

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// answerLimit limits the wait for an answer. A JVM starts slowly on a busy machine.
const answerLimit = 2 * time.Minute

// Driver is a process with a client of another language or library. A test can kill,
// pause and resume the process.
//
// A command is a line "NUMBER WHO VERB ARGUMENT…". Each WHO has its own thread, which
// carries out its commands one after the other. The answer is a line "NUMBER TEXT". The
// text "error CLASS MESSAGE" reports an error that the client returned or threw.
type Driver struct {
	*testserver.Process

	t     testing.TB
	in    *os.File
	ended chan struct{} // closed after the last answer of the process

	mu    sync.Mutex
	calls map[int]*Call // the calls without an answer, by number
	last  int
}

// Error is an error of the client.
type Error struct{ Class, Text string }

func (e *Error) Error() string { return e.Class + ": " + e.Text }

// Start starts cmd as a driver. It waits until the driver prints the line "0 ready".
func Start(t testing.TB, cmd *exec.Cmd) *Driver {
	t.Helper()
	d := &Driver{t: t, ended: make(chan struct{}), calls: make(map[int]*Call)}
	commands, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ready := d.newCall()
	d.in, cmd.Stdin, cmd.Stdout = in, commands, out
	t.Cleanup(func() { // after the process exited
		<-d.ended
		_, _ = in.Close(), answers.Close()
	})
	go d.read(answers)
	// If the process was not started, this closes its ends of the pipes.
	defer func() { _, _ = commands.Close(), out.Close() }()
	d.Process = testserver.StartProcess(t, cmd)
	_ = commands.Close()
	_ = out.Close()
	if _, err := ready.Answer(); err != nil {
		t.Fatalf("neighbours: %s: %v", cmd.Path, err)
	}
	return d
}

func (d *Driver) read(answers *os.File) {
	defer close(d.ended)
	for lines := bufio.NewScanner(answers); lines.Scan(); {
		number, text, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(number)
		d.mu.Lock()
		call := d.calls[n]
		delete(d.calls, n)
		d.mu.Unlock()
		if err != nil || call == nil {
			continue // a library printed this line
		}
		call.text = text
		close(call.done)
	}
}

// newCall returns a new call with the next number. Number 0 is the start of the driver.
func (d *Driver) newCall() *Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &Call{driver: d, number: d.last, done: make(chan struct{})}
	d.calls[c.number] = c
	d.last++
	return c
}

// Call is a command that was sent.
type Call struct {
	driver *Driver
	number int
	done   chan struct{}
	text   string
}

// Begin sends a command and returns at once. A duration is sent in milliseconds.
func (d *Driver) Begin(who, verb string, args ...any) *Call {
	d.t.Helper()
	c := d.newCall()
	line := fmt.Sprintf("%d %s %s", c.number, who, verb)
	for _, a := range args {
		if span, ok := a.(time.Duration); ok {
			a = span.Milliseconds()
		}
		line += fmt.Sprintf(" %v", a)
	}
	if _, err := d.in.WriteString(line + "\n"); err != nil {
		d.t.Logf("neighbours: %s: %v", verb, err) // the call reports that the process exited
	}
	return c
}

// Done returns a channel that is closed when the answer has arrived.
func (c *Call) Done() <-chan struct{} { return c.done }

// Answer waits for the answer and returns its text. The error is an *Error, unless the
// process has exited or no answer comes within 2 minutes. Without an answer in this
// time, the test fails.
func (c *Call) Answer() (string, error) {
	c.driver.t.Helper()
	late := time.NewTimer(answerLimit)
	defer late.Stop()
	select {
	case <-c.done:
	case <-c.driver.ended:
		select {
		case <-c.done:
		default:
			return "", fmt.Errorf("neighbours: the driver exited without an answer")
		}
	case <-late.C:
		c.driver.t.Errorf("neighbours: no answer within %v", answerLimit)
		return "", fmt.Errorf("neighbours: no answer within %v", answerLimit)
	}
	if text, ok := strings.CutPrefix(c.text, "error "); ok {
		class, text, _ := strings.Cut(text, " ")
		return "", &Error{class, text}
	}
	return c.text, nil
}

// Ask sends a command and waits for its answer.
func (d *Driver) Ask(who, verb string, args ...any) (string, error) {
	d.t.Helper()
	return d.Begin(who, verb, args...).Answer()
}
