//go:build !linux

package pgtest

import "os/exec"

// dieWithParent does nothing here: a test that is killed leaves its servers
// behind.
func dieWithParent(*exec.Cmd) {}
