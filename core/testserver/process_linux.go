package testserver

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes the kernel kill the process of cmd when the thread that starts
// the process exits. A thread of a Go program usually runs as long as the program. So a
// program that is killed takes the process with it. cmd must not be started yet.
// Closing standard input would not suffice, because a stopped process does not notice
// that.
func EndWithParent(cmd *exec.Cmd) { attributes(cmd).Pdeathsig = syscall.SIGKILL }

// InNamespace makes the process of cmd run in a new network namespace, and be killed
// with its parent. InNamespace needs the rights of root.
func InNamespace(cmd *exec.Cmd) error {
	EndWithParent(cmd)
	attributes(cmd).Cloneflags |= syscall.CLONE_NEWNET
	return nil
}

func attributes(cmd *exec.Cmd) *syscall.SysProcAttr {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	return cmd.SysProcAttr
}
