package testserver

import (
	"os/exec"
	"syscall"
)

// EndWithParent makes the kernel kill the process of cmd, which is not started yet,
// when the thread that starts it exits. In a Go program that is when the program exits,
// however it does. A process that is stopped would not notice the end of its standard
// input.
func EndWithParent(cmd *exec.Cmd) { attributes(cmd).Pdeathsig = syscall.SIGKILL }

// InNamespace makes the process of cmd run in a network namespace of its own, which
// takes the rights of root, and be killed with its parent.
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
