package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent makes the kernel kill the process when the thread that starts it exits.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// adopt makes this process the parent of the processes that its descendants leave
// behind. So reap can reap these processes. In a container, there may be no other
// process that reaps them.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// self returns the path of this program, even after its file was replaced.
func self() (string, error) { return "/proc/self/exe", nil }
