package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startLimit is the maximum time until a server serves. On a busy machine, three
// ZooKeeper servers that start together can need most of this time.
const startLimit = 2 * time.Minute

// Process is a process that a test started. It is killed at the end of the test. On
// Linux it is also killed if the test's process is killed. If the test failed, the
// test's log has the last 2,000 bytes of the process's output. The methods fail the
// test if they cannot be carried out, and are safe for concurrent use.
type Process struct {
	t       testing.TB
	name    string
	output  string // the file with the output
	command func() (*exec.Cmd, error)
	ready   func(pid int) bool // nil if the process is ready at once
	tree    bool               // signals are sent to its children too

	mu     sync.Mutex
	cmd    *exec.Cmd // nil before the start and after Kill
	ended  chan struct{}
	paused bool
	guard  *guard // nil unless a tree is paused
}

// StartProcess starts cmd, which must not be started yet, and returns at once. If cmd
// has no Stdout or Stderr, Output returns what the process writes there. The process
// cannot be restarted.
func StartProcess(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := newProcess(t, filepath.Base(cmd.Path), tempDir(t))
	started := false
	p.command = func() (*exec.Cmd, error) {
		if started {
			return nil, errors.New("a process of StartProcess cannot be restarted")
		}
		started = true
		return cmd, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.launch(); err != nil {
		t.Fatalf("testserver: %s: %v", p.name, err)
	}
	return p
}

// newProcess returns a process that is not running. The process's output is stored in
// dir.
func newProcess(t testing.TB, name, dir string) *Process {
	p := &Process{t: t, name: name, output: filepath.Join(dir, "output")}
	t.Cleanup(func() {
		p.Kill()
		if text := p.Output(); t.Failed() && text != "" {
			t.Logf("the end of what %s wrote:\n%s", name, text[max(0, len(text)-2000):])
		}
	})
	return p
}

// begin starts the process for the first time. choose picks a port. Another process may
// take the port before the start, so begin calls choose again for each attempt.
func (p *Process) begin(choose func()) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for try := 1; ; try++ {
		choose()
		err := p.run()
		if err == nil {
			return
		}
		if try == 5 {
			p.t.Fatalf("testserver: %s: %v", p.name, err)
		}
	}
}

// run starts the process and waits until it is ready. The caller holds mu.
func (p *Process) run() error {
	if err := p.launch(); err != nil {
		return err
	}
	return p.await()
}

// launch starts the process. The caller holds mu.
func (p *Process) launch() error {
	cmd, err := p.command()
	if err != nil {
		return err
	}
	EndWithParent(cmd)
	if cmd.Stdout == nil || cmd.Stderr == nil {
		file, err := os.OpenFile(p.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer file.Close()
		if cmd.Stdout == nil {
			cmd.Stdout = file
		}
		if cmd.Stderr == nil {
			cmd.Stderr = file
		}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.cmd, p.ended, p.paused = cmd, ended, false
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	return nil
}

// await waits until the process is ready, and kills it if it does not become ready. The
// caller holds mu.
func (p *Process) await() error {
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case <-p.ended:
			p.cmd = nil
			return fmt.Errorf("it ended at once: %s", p.Output())
		default:
		}
		if p.ready == nil || p.ready(p.cmd.Process.Pid) {
			return nil
		}
	}
	p.kill()
	return errors.New("it does not answer")
}

// Output returns the recorded standard output and standard error of the process.
func (p *Process) Output() string {
	text, _ := os.ReadFile(p.output)
	return string(text)
}

// Pid returns the process ID. It fails the test if the process was killed.
func (p *Process) Pid() int {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mustRun()
	return p.cmd.Process.Pid
}

// Running reports whether the process is running and not paused.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil || p.paused {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// mustRun fails the test if the process was killed. The caller holds mu.
func (p *Process) mustRun() {
	p.t.Helper()
	if p.cmd == nil {
		p.t.Fatalf("testserver: %s is not running", p.name)
	}
}

// Pause stops the process (SIGSTOP). On systems with /proc, Pause returns when the
// process has stopped. The process's connections stay open, and the kernel accepts new
// connections. The process answers nothing until Resume.
func (p *Process) Pause() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mustRun()
	// The parent is stopped first, so that it starts no further children.
	p.signal(p.cmd.Process.Pid, sigStop)
	p.paused = true
	if !p.tree {
		return
	}
	all := family(p.cmd.Process.Pid)
	if p.guard == nil {
		guard, err := newGuard(all)
		if err != nil {
			p.signal(p.cmd.Process.Pid, sigCont)
			p.t.Fatalf("testserver: pause: %v", err)
		}
		p.guard = guard
	}
	for _, pid := range all[1:] {
		_ = send(pid, sigStop)
	}
}

// Resume continues a paused process.
func (p *Process) Resume() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mustRun()
	if p.tree {
		for _, pid := range family(p.cmd.Process.Pid)[1:] {
			_ = send(pid, sigCont)
		}
	}
	p.signal(p.cmd.Process.Pid, sigCont)
	p.guard.end()
	p.guard, p.paused = nil, false
}

func (p *Process) signal(pid int, sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatalf("testserver: %s: %v", p.name, err)
	}
	// The loop waits until the process has stopped. Systems without /proc do not report
	// that.
	for deadline := time.Now().Add(10 * time.Second); sig == sigStop && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.HasPrefix(afterName(text), " T") {
			return
		}
	}
}

// Kill kills the process (SIGKILL), as in a crash, and returns when the process has
// exited. The process's files are kept. Kill does nothing if the process was killed
// before.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
}

func (p *Process) kill() {
	if p.cmd == nil {
		return
	}
	first := p.cmd.Process.Pid
	all := []int{first}
	if p.tree {
		all = family(first) // if only the parent were killed, its children would exit later
	}
	_ = p.cmd.Process.Kill()
	for _, pid := range all[1:] {
		_ = send(pid, syscall.SIGKILL)
	}
	<-p.ended
	p.guard.end()
	p.guard, p.cmd = nil, nil
	for _, pid := range all[1:] {
		for deadline := time.Now().Add(10 * time.Second); send(pid, 0) == nil && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	}
}

// Wait waits until the process has exited or was killed, and fails the test after limit.
func (p *Process) Wait(limit time.Duration) {
	p.t.Helper()
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	select {
	case <-ended:
	case <-time.After(limit):
		p.t.Fatalf("testserver: %s has not ended within %v", p.name, limit)
	}
}

// Restart kills the process if it is running, and starts it again at the same address
// with its files. It returns when the process is ready.
func (p *Process) Restart() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		// Another process can use the port for a moment.
		if err = p.run(); err == nil {
			return
		}
	}
	p.t.Fatalf("testserver: %s: restart: %v", p.name, err)
}
