package pgtest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Pause stops all processes of the server as they stand: its connections stay
// open, new ones are taken by the kernel, and nothing is answered until Resume.
func (s *Server) Pause() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil || s.guard != nil {
		s.t.Fatal("pgtest: the server is not running")
	}
	// The first one first: it makes no further ones then.
	_ = s.cmd.Process.Signal(syscall.SIGSTOP)
	all := s.processes()
	guard, err := newGuard(all)
	if err != nil {
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
		s.t.Fatalf("pgtest: pause: %v", err)
	}
	s.guard = guard
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
}

// Resume lets a paused server go on.
func (s *Server) Resume() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil || s.guard == nil {
		s.t.Fatal("pgtest: the server is not paused")
	}
	for _, pid := range s.processes() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	s.release()
}

func (s *Server) release() {
	if s.guard != nil {
		s.guard.end()
		s.guard = nil
	}
}

// processes are the server's first process and its children.
func (s *Server) processes() []int {
	first := s.cmd.Process.Pid
	all := []int{first}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// "pid (name) state parent …", and the name may contain anything.
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		pid, errPid := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) > 1 && errPid == nil && fields[1] == fmt.Sprint(first) {
			all = append(all, pid)
		}
	}
	return all
}

// guard kills stopped processes if the test is killed: they would notice nothing
// of that.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func newGuard(pids []int) (*guard, error) {
	list := strings.Trim(fmt.Sprint(pids), "[]")
	cmd := exec.Command("sh", "-c", "read x; kill -KILL "+list)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &guard{cmd, in}, nil
}

func (g *guard) end() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	_ = g.in.Close()
}
