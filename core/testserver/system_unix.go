//go:build unix

package testserver

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// These signals stop a process, and continue it.
const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// send sends s to a process that the test's process need not have started itself.
func send(pid int, s syscall.Signal) error { return syscall.Kill(pid, s) }

// ownGroup makes the process of cmd lead a process group.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// asPostgres makes cmd run as a user that PostgreSQL accepts, because PostgreSQL refuses
// to run as root.
func asPostgres(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, errU := strconv.ParseUint(u.Uid, 10, 32)
	gid, errG := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(errU, errG); err != nil {
		return err
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return nil
}

// give makes the user of asPostgres the owner of a directory, if the test runs as root.
func give(dir string) error {
	cmd := exec.Command("true")
	if err := asPostgres(cmd); err != nil || os.Getuid() != 0 {
		return err
	}
	owner := cmd.SysProcAttr.Credential
	return os.Chown(dir, int(owner.Uid), int(owner.Gid))
}
