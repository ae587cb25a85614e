package testserver

import (
	"os/exec"
	"syscall"
)

// EndWithParent has the kernel kill the process of cmd, which is not started yet,
// when the thread that starts it ends. In a Go program that is when the program
// ends, however it ends. A process that is stopped would not notice the end of its
// standard input.
func EndWithParent(cmd *exec.Cmd) { attributes(cmd).Pdeathsig = syscall.SIGKILL }

// InNamespace has the process of cmd run in a network namespace of its own, which
// takes the rights of root, and end with its parent.
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
