package hazards_test

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// patience limits how long a test waits for an event.
const patience = 60 * time.Second

// child is a worker in a separate process. The process ends with the test.
type child struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	name string

	mu      sync.Mutex
	id      int
	orders  *json.Encoder
	reports []report
	changed chan struct{} // closed with the next report
	gone    chan struct{} // closed when the process has exited
}

// newChild starts a worker. env is added to the worker's environment.
func newChild(t testing.TB, p plan, env ...string) *child {
	t.Helper()
	return newChildOn(t, nil, p, env...)
}

// newChildOn starts a worker on the given host, or on this machine if host is nil.
func newChildOn(t testing.TB, host *testserver.Host, p plan, env ...string) *child {
	t.Helper()
	if p.Name == "" {
		p.Name = "child"
	}
	if p.Prefix == "" {
		p.Prefix = ""
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := host.Command(os.Args[0])
	// By default, a program with the race detector waits a second before it exits, and
	// continues after a race.
	cmd.Env = append(os.Environ(), append(env, workerEnv+"="+string(text), "GORACE=atexit_sleep_ms=0 halt_on_error=1")...)
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
	c := &child{
		t: t, cmd: cmd, in: in, name: p.Name, orders: json.NewEncoder(in),
		changed: make(chan struct{}), gone: make(chan struct{}),
	}
	go c.read(out)
	t.Cleanup(c.kill)
	c.await(0, "ready")
	return c
}

func (c *child) read(out io.Reader) {
	in := json.NewDecoder(out)
	for {
		var r report
		if in.Decode(&r) != nil {
			break
		}
		c.mu.Lock()
		c.reports = append(c.reports, r)
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
	}
	_ = c.cmd.Wait()
	close(c.gone)
}

// send sends o to the process and returns the order's ID.
func (c *child) send(o order) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id++
	o.ID = c.id
	// If the process has exited, the test that waits for a report fails.
	_ = c.orders.Encode(o)
	return c.id
}

// find returns the first report of one of these kinds on an order.
func (c *child) find(id int, kinds ...string) (report, bool, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.reports {
		for _, k := range kinds {
			if r.ID == id && r.Kind == k {
				return r, true, c.changed
			}
		}
	}
	return report{}, false, c.changed
}

func (c *child) await(id int, kinds ...string) report {
	c.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		r, ok, changed := c.find(id, kinds...)
		if ok {
			return r
		}
		select {
		case <-changed:
		case <-c.gone:
			if r, ok, _ := c.find(id, kinds...); ok {
				return r
			}
			c.t.Fatalf("%s ended before it was %q", c.name, kinds)
		case <-timeout.C:
			c.t.Fatalf("%s was not %q within %v", c.name, kinds, patience)
		}
	}
}

func (c *child) all(kind string) []report {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []report
	for _, r := range c.reports {
		if r.Kind == kind {
			all = append(all, r)
		}
	}
	return all
}

// acquire makes the child acquire a lock, and returns the ID and the report of the
// order that was granted.
func (c *child) acquire(o order) (int, report) {
	c.t.Helper()
	o.Op = "acquire"
	id := c.send(o)
	r := c.await(id, "acquired", "refused")
	for end := time.Now().Add(patience); r.is("unavailable") && time.Now().Before(end); {
		id = c.send(o) // a busy machine can be too slow for a short TTL
		r = c.await(id, "acquired", "refused")
	}
	if !r.OK {
		c.t.Fatalf("%s: acquire: %s", c.name, r.Text)
	}
	return id, r
}

func (c *child) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatalf("%s: %v: %v", c.name, sig, err)
	}
}

// pause stops the process with SIGSTOP, and returns when the process has stopped.
func (c *child) pause() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	for end := time.Now().Add(patience); !stands(c.cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s did not stop", c.name)
		}
	}
}

func (c *child) resume() {
	c.t.Helper()
	c.signal(syscall.SIGCONT)
}

// stands reports whether a process is stopped by a signal. It returns true on systems
// without /proc.
func stands(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	for i := len(text) - 1; i > 0; i-- {
		if text[i] == ')' && i+2 < len(text) {
			return text[i+2] == 'T'
		}
	}
	return true
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.gone
	_ = c.in.Close()
}
