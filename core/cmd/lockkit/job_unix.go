//go:build unix && !linux

package main

import (
	"os"
	"syscall"
)

// endWithParent does nothing on this system. Only the guard kills the group here.
func endWithParent(*syscall.SysProcAttr) {}

func adopt() {}

func awaitExit() {}

const waitFlags = 0

// child is not used on this system, where the processes that the command leaves behind
// get another parent.
type child struct{ pid int }

func children() []child { return nil }

func (child) signal(syscall.Signal) {}

func self() (string, error) { return os.Executable() }
