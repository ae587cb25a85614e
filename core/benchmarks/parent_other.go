//go:build !linux

package main

import "os/exec"

// dieWithParent does nothing: only Linux ends a process with its parent.
func dieWithParent(*exec.Cmd) {}
