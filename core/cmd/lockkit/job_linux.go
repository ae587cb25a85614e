package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent makes the kernel kill the process when the thread that starts it exits.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// adopt makes this process the parent of the processes that its descendants leave
// behind. So reap can reap these processes. In a container, there may be no other
// process that reaps them.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// awaitExit waits until a child has exited, and leaves the child to be reaped.
func awaitExit() {
	for unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

const waitFlags = syscall.WNOHANG // another function may have reaped the child

// child is a child of this process.
type child struct {
	pid   int
	start string // the time of its start, which distinguishes processes with the same ID
}

// children returns the children of this process in its session, including those that
// are not reaped.
func children() (found []child) {
	procs, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer procs.Close()
	names, _ := procs.Readdirnames(-1)
	session, err := unix.Getsid(0)
	if err != nil {
		return nil
	}
	for _, name := range names {
		if c, parent, in := look(name); parent == os.Getpid() && in == session {
			found = append(found, c)
		}
	}
	return found
}

// look returns a process, its parent and its session, from the file described in
// proc_pid_stat(5). The parent is 0 if there is no such process.
func look(pid string) (c child, parent, session int) {
	id, err := strconv.Atoi(pid)
	if err != nil {
		return child{}, 0, 0
	}
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	// The name in parentheses can contain blanks and parentheses.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return child{}, 0, 0
	}
	parent, _ = strconv.Atoi(fields[1])
	session, _ = strconv.Atoi(fields[3])
	return child{id, fields[19]}, parent, session
}

// signal sends s, unless the child was reaped. os.Process refers to the process and not
// to its ID, which another process can have later.
func (c child) signal(s syscall.Signal) {
	p, err := os.FindProcess(c.pid)
	if err != nil {
		return
	}
	if now, parent, _ := look(strconv.Itoa(c.pid)); now == c && parent == os.Getpid() {
		_ = p.Signal(s)
	}
	_ = p.Release()
}

// self returns the path of this program, even after its file was replaced.
func self() (string, error) { return "/proc/self/exe", nil }
