//go:build unix && !linux

package main

import (
	"os"
	"syscall"
)

// Only the guard kills the group here.
func endWithParent(*syscall.SysProcAttr) {}

func adopt() {}

func self() (string, error) { return os.Executable() }
