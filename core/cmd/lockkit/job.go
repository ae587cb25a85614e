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
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockkit/lockkit/core"
)

// stuck is the time after SIGKILL after which remaining processes count as impossible to
// kill.
const stuck = 2 * time.Second

// job is a command in its own process group, which usually includes the command's
// children.
type job struct {
	cmd    *exec.Cmd
	guard  *guard
	alone  bool               // this process had no children before
	exits  atomic.Int64       // exits of children that were noticed
	ended  chan struct{}      // closed when the command was reaped
	status syscall.WaitStatus // valid after the command was reaped
}

// startJob starts the command, unless holds then returns false. It returns a job if the
// command was started, even with an error. The calling goroutine must last as long as
// the job. On Linux the kernel kills the command when the thread that started the
// command exits.
func startJob(path string, args, env []string, holds func() bool) (*job, error) {
	runtime.LockOSThread()
	alone := len(children()) == 0
	adopt()
	g, err := newGuard()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path)
	cmd.Args, cmd.Env = args, env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if _, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ); err == nil {
		cmd.Stdin = nil // a terminal stops a process that reads from it in a background group
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(cmd.SysProcAttr)
	if !holds() { // this process may have been paused until now
		g.end()
		return nil, core.ErrLost
	}
	if err := cmd.Start(); err != nil {
		g.end()
		return nil, err
	}
	j := &job{cmd: cmd, guard: g, alone: alone, ended: make(chan struct{})}
	go j.reap()
	if err := g.watch(j.group()); err != nil {
		err = fmt.Errorf("the command was stopped, because the guard of its process group has exited: %w", err)
		if !j.stop(time.Now()) {
			err = errStuck
		}
		return j, err
	}
	return j, nil
}

// reap waits for every child of this process. The children are the guard, the command,
// and the processes that the command's descendants leave behind (adopt). No other
// function may wait for the command, because reap would miss the command's exit status.
func (j *job) reap() {
	for running := true; ; {
		awaitExit()
		j.exits.Add(1)
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, waitFlags, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return // no child is left, not even the guard
		case pid == j.guard.cmd.Process.Pid:
			j.guard.reaped.Store(true)
		case running && pid == j.group():
			j.status, running = status, false
			close(j.ended)
		}
	}
}

func (j *job) group() int { return j.cmd.Process.Pid }

func (j *job) signal(s syscall.Signal) { _ = syscall.Kill(-j.group(), s) }

// gone reports whether the command and its whole group have exited.
func (j *job) gone() bool {
	select {
	case <-j.ended:
	default:
		return false
	}
	return errors.Is(syscall.Kill(-j.group(), 0), syscall.ESRCH)
}

// stop sends SIGTERM to the group now, and SIGKILL from the time kill on. When the group
// has exited, stop does the same with the strays. It waits until all have exited, at
// most until stuck after the first SIGKILL, and reports whether they have.
func (j *job) stop(kill time.Time) bool {
	if !j.gone() && time.Now().Before(kill) {
		j.signal(syscall.SIGTERM)
	}
	asked := make(map[child]bool) // strays that have received SIGTERM
	var killed time.Time
	for gone := false; ; {
		var strays []child
		if gone = gone || j.gone(); gone { // another group can have the same ID later
			var complete bool
			if strays, complete = j.strays(); complete && len(strays) == 0 {
				j.guard.end()
				return true
			}
		}
		now, pause := time.Now(), 5*time.Millisecond
		if left := kill.Sub(now); left > 0 {
			pause = min(pause, left)
			for _, c := range strays {
				if !asked[c] {
					asked[c] = true
					c.signal(syscall.SIGTERM)
				}
			}
		} else {
			if killed.IsZero() {
				killed = now
			}
			if now.Sub(killed) > stuck {
				return false
			}
			if !gone {
				j.signal(syscall.SIGKILL)
			}
			for _, c := range strays {
				c.signal(syscall.SIGKILL)
			}
		}
		time.Sleep(pause)
	}
}

// strays returns the processes that the command has left behind outside its group, if
// they are in the session of this process. It returns only children of this process.
// The children of a stray become strays when the stray has exited. If complete is
// false, a process exited meanwhile, and its children may be missing. There are no
// strays if this process had children before the job, because their children would be
// taken for strays.
func (j *job) strays() (found []child, complete bool) {
	if !j.alone {
		return nil, true
	}
	exits := j.exits.Load()
	found = slices.DeleteFunc(children(), func(c child) bool {
		return c.pid == j.guard.cmd.Process.Pid && !j.guard.reaped.Load()
	})
	return found, exits == j.exits.Load()
}

// exit returns the command's exit code as a shell reports it. The command must have
// exited.
func (j *job) exit() int {
	if j.status.Signaled() {
		return exitSignal + int(j.status.Signal())
	}
	return j.status.ExitStatus()
}

// guard is a process that kills the group when this process exits for any reason.
type guard struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	reaped atomic.Bool // another process can have the guard's ID now
}

func newGuard() (*guard, error) {
	path, err := self()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, guardName)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // not killed with this process's group
	cmd.Env = guardEnv()
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("the guard of the process group cannot be started: %w", err)
	}
	return &guard{cmd: cmd, in: in}, nil
}

func (g *guard) watch(group int) error {
	_, err := fmt.Fprintln(g.in, group)
	return err
}

// end kills the guard, so that the guard does not react to the end of this process.
// After the command was started, reap can have waited for the guard already. Then end
// kills nothing, because another process can have the guard's ID.
func (g *guard) end() {
	if !g.reaped.Load() {
		_ = g.cmd.Process.Kill()
	}
	_ = g.cmd.Wait()
}

// guardEnv returns the environment without the variables that contain a secret.
func guardEnv() []string { return without(os.Environ(), storeVariable, ownerVariable) }

// deafen makes the guard ignore the signals that a service manager sends to all
// processes of a service. So this program can stop the command first.
func deafen() { signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT) }

func killGroup(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }
