//go:build !linux

package testserver

import (
	"errors"
	"os/exec"
)

// EndWithParent does nothing on this system. Processes are killed at the end of their
// test, but outlive a test process that is killed.
func EndWithParent(*exec.Cmd) {}

// InNamespace returns errors.ErrUnsupported on this system.
func InNamespace(*exec.Cmd) error { return errors.ErrUnsupported }
