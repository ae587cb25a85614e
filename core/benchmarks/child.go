package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// errand is the task of a child process.
type errand struct {
	Mode      string // a key of modes
	Contender string
	Addr      string
	Key       string
	Index     int    // index of this child, from 0
	Shared    string // path of the shared memory
	Count     int
	Warm      time.Duration
	Window    time.Duration
	Drain     time.Duration
}

// childVariable is the environment variable that makes a process of this program a
// child. Its value is the child's errand.
const childVariable = "LOCKKIT_BENCHMARKS_CHILD"

// modes are the tasks of children. Each task makes its preparations, calls start and
// returns a result.
var modes = map[string]func(ctx context.Context, e errand, l *locks, start func()) (any, error){
	"load":    loadChild,
	"handoff": handoffChild,
	"held":    heldChild,
}

// runChild does the errand if this process is a child, and reports whether it is one. A
// child writes a line when it is ready, starts when it reads a line, and writes its
// result. A child exits when it fails, or when its standard input is closed after the
// start.
func runChild() (child bool, code int) {
	text := os.Getenv(childVariable)
	if text == "" {
		return false, 0
	}
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	fail := func(err error) (bool, int) {
		_ = out.Encode(report{Error: err.Error()})
		return true, 1
	}
	var e errand
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return fail(err)
	}
	c, err := contenderOf(e.Contender)
	if err != nil {
		return fail(err)
	}
	l, err := c.open(opening{addr: e.Addr, conns: 64})
	if err != nil {
		return fail(err)
	}
	over := make(chan struct{})
	start := func() {
		_ = out.Encode(report{})
		if _, err := in.ReadString('\n'); err != nil {
			os.Exit(1)
		}
		go func() {
			_, _ = io.Copy(io.Discard, in)
			close(over)
		}()
	}
	ended := make(chan error, 1)
	go func() {
		result, err := modes[e.Mode](context.Background(), e, l, start)
		if err == nil {
			var text []byte
			text, err = json.Marshal(result)
			err = errors.Join(err, out.Encode(report{Result: text}))
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			return fail(err)
		}
		<-over
	case <-over:
	}
	return true, 0
}

// report is a line that a child writes.
type report struct {
	Error  string          `json:",omitempty"`
	Result json.RawMessage `json:",omitempty"`
}

// child is a process of this program that does an errand.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

// spawn starts a child and waits until it is ready.
func spawn(e errand) (*child, error) {
	text, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self)}
	// By default, a program with the race detector waits a second before it exits.
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	c.cmd.Stderr = os.Stderr
	testserver.EndWithParent(c.cmd)
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := c.read(nil); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

func (c *child) start() error {
	_, err := io.WriteString(c.in, "start\n")
	return err
}

// read waits for the child's next report.
func (c *child) read(result any) error {
	var r report
	if err := c.out.Decode(&r); err != nil {
		return fmt.Errorf("a child process ended early: %w", err)
	}
	if r.Error != "" {
		return fmt.Errorf("a child process: %s", r.Error)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(r.Result, result)
}

// end makes a child exit, and waits for the exit.
func (c *child) end() error {
	err := c.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- c.cmd.Wait() }()
	select {
	case e := <-ended:
		return errors.Join(err, e)
	case <-time.After(20 * time.Second):
		return errors.Join(err, c.cmd.Process.Kill(), <-ended)
	}
}

func endAll(children []*child) error {
	var errs []error
	for _, c := range children {
		errs = append(errs, c.end())
	}
	return errors.Join(errs...)
}
