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

// child is a worker in a process of its own, behind a proxy of its own. It ends
// with the test.
type child struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	name  string
	proxy *testserver.Proxy
	gone  chan struct{} // closed when it ended
	end   sync.Once
}

// newChild starts a worker whose entries go to the history.
func newChild(t testing.TB, p plan, proxy *testserver.Proxy, h *history) *child {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	// With the race detector a program else waits a second before it ends, and
	// goes on after a race.
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

// kill ends the process like a crash, and returns when all that it said is in the
// history.
func (c *child) kill() {
	c.end.Do(func() {
		_ = c.cmd.Process.Kill()
		<-c.gone
		_ = c.in.Close()
	})
}

// finish lets it end its work.
func (c *child) finish() { _ = c.in.Close() }
