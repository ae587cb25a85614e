//go:build unix

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stuck is how long after SIGKILL processes may still be there before they count as
// processes that cannot be killed.
const stuck = 2 * time.Second

// job is a command in a process group of its own, which its children are in as well.
type job struct {
	cmd   *exec.Cmd
	guard *guard
	ended chan struct{} // closed when the command has ended and was reaped
}

// startJob starts the command. The goroutine that calls it must last as long as the
// job: the kernel kills the command when the thread ends that has started it.
func startJob(path string, args, env []string) (*job, error) {
	runtime.LockOSThread()
	adopt()
	g, err := newGuard()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path)
	cmd.Args, cmd.Env = args, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if _, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
		cmd.Stdin = nil // a terminal stops a process that reads from it in another group than its own
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		g.end()
		return nil, err
	}
	j := &job{cmd: cmd, guard: g, ended: make(chan struct{})}
	go func() {
		defer close(j.ended)
		_ = cmd.Wait() // ProcessState says it all
	}()
	if err := g.watch(j.group()); err != nil {
		j.stop(time.Now())
		return nil, err
	}
	return j, nil
}

func (j *job) group() int { return j.cmd.Process.Pid }

// signal sends s to the group.
func (j *job) signal(s syscall.Signal) { _ = syscall.Kill(-j.group(), s) }

// gone tells whether the command and all of its group have ended.
func (j *job) gone() bool {
	select {
	case <-j.ended:
	default:
		return false
	}
	for {
		// Those that it left to this process.
		if pid, err := syscall.Wait4(-j.group(), nil, syscall.WNOHANG, nil); pid <= 0 && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	return errors.Is(syscall.Kill(-j.group(), 0), syscall.ESRCH)
}

// stop ends the group, by SIGTERM now and SIGKILL at kill, and waits for that. It
// reports whether nothing is left.
func (j *job) stop(kill time.Time) bool {
	if !j.gone() && time.Now().Before(kill) {
		j.signal(syscall.SIGTERM)
	}
	for !j.gone() {
		left := time.Until(kill)
		if left <= 0 {
			j.signal(syscall.SIGKILL)
		}
		if left < -stuck {
			return false
		}
		pause := 5 * time.Millisecond
		if left > 0 {
			pause = min(pause, left)
		}
		time.Sleep(pause)
	}
	j.guard.end()
	return true
}

// exit is the command's exit code as a shell has it. The command has ended.
func (j *job) exit() int {
	if s, ok := j.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return exitSignal + int(s.Signal())
	}
	return j.cmd.ProcessState.ExitCode()
}

// guard is a process that kills the group when this one is gone, however that
// happened.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func newGuard() (*guard, error) {
	path, err := self()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, guardName)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it is not to be killed with this one's group
	cmd.Env = guardEnv()
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("the process that watches over this one cannot be started: %w", err)
	}
	return &guard{cmd, in}, nil
}

// watch says which group it is.
func (g *guard) watch(group int) error {
	_, err := fmt.Fprintln(g.in, group)
	return err
}

// end ends the guard before it sees the end of this process.
func (g *guard) end() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
}

// guardEnv is the environment without what has a secret.
func guardEnv() []string { return without(os.Environ(), storeVariable, ownerVariable) }

// deafen has the guard outlive the signals that a service manager sends to all
// processes of a service, until this program has done its part.
func deafen() { signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) }

func killGroup(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }
