package main

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// guardName is the name of a process that kills a group when the process that started
// it is gone. It is no command for users.
const guardName = "internal-guard"

// guardMain reads the number of a process group from in. in ends with the process that
// has the other end; guardMain then kills the group.
func guardMain(in io.Reader) int {
	deafen()
	r := bufio.NewReader(in)
	line, err := r.ReadString('\n')
	if err != nil {
		return exitOK // there is no group yet
	}
	group, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || group < 2 {
		return exitUsage
	}
	_, _ = io.Copy(io.Discard, r)
	killGroup(group)
	return exitOK
}
