//go:build !unix

package testserver

import (
	"errors"
	"os/exec"
	"syscall"
)

// This system does not have these signals, so Pause and Resume fail the test.
const (
	sigStop = syscall.Signal(19)
	sigCont = syscall.Signal(18)
)

func send(int, syscall.Signal) error { return errors.ErrUnsupported }

func ownGroup(*exec.Cmd) {}

func asPostgres(*exec.Cmd) error { return nil }

func give(string) error { return nil }
