package main

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// guardName is the argument that starts a guard. A guard kills a process group when the
// process that started the guard has exited. The argument is not for users.
const guardName = "internal-guard"

// guardMain reads the ID of a process group from the pipe in. When the process that
// writes to the pipe exits, the pipe ends, and guardMain kills the group.
func guardMain(in io.Reader) int {
	deafen()
	r := bufio.NewReader(in)
	line, err := r.ReadString('\n')
	if err != nil {
		return exitOK // no group was started
	}
	group, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || group < 2 {
		return exitUsage
	}
	_, _ = io.Copy(io.Discard, r)
	killGroup(group)
	return exitOK
}
