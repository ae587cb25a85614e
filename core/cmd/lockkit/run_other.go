//go:build !unix

package main

import (
	"errors"
	"io"
)

var runCommand = command{"run", "run KEY -- COMMAND ...                 not supported on this system: it has no process groups", run}

func run(_ []string, _, errs io.Writer) int {
	return complain(errs, exitUsage, errors.New("run is not supported on this system: it has no process groups"))
}

func deafen() {}

func killGroup(int) {}
