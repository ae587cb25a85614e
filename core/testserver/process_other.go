//go:build !linux

package testserver

import (
	"errors"
	"os/exec"
)

// EndWithParent does nothing here: processes end with their test, but outlive a
// test process that is killed.
func EndWithParent(*exec.Cmd) {}

// InNamespace fails here.
func InNamespace(*exec.Cmd) error { return errors.ErrUnsupported }
