package hazards_test

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process when the test binary ends: one
// that is stopped would not notice the end of its standard input.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
