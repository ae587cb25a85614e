package histories_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/lockkit/lockkit/core/testserver"
)

// child is a worker in a separate process, behind its own proxy. The process ends with
// the test.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	name  string
	proxy *testserver.Proxy
	gone  chan struct{} // closed when the process has exited
	end   sync.Once
}

// newChild starts a worker whose entries are added to the history.
func newChild(t testing.TB, p plan, proxy *testserver.Proxy, h *history) *child {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	// By default, a program with the race detector waits a second before it exits, and
	// continues after a race.
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 halt_on_error=1")
	cmd.Stderr = os.Stderr
	testserver.EndWithParent(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &child{t: t, cmd: cmd, in: in, name: p.Name, proxy: proxy, gone: make(chan struct{})}
	go func() {
		defer close(c.gone)
		for lines := json.NewDecoder(out); ; {
			var e entry
			if lines.Decode(&e) != nil {
				break
			}
			h.add(e)
		}
		_ = cmd.Wait()
	}()
	t.Cleanup(c.kill)
	return c
}

func (c *child) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatalf("%s: %v: %v", c.name, sig, err)
	}
}

// kill kills the process, and returns when all its entries are in the history.
func (c *child) kill() {
	c.end.Do(func() {
		_ = c.cmd.Process.Kill()
		<-c.gone
		_ = c.in.Close()
	})
}

// finish closes the worker's input, so that the worker finishes its work and exits.
func (c *child) finish() { _ = c.in.Close() }
