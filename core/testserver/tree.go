package testserver

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// family returns a process and, on systems with /proc, its children.
func family(first int) []int {
	all := []int{first}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(afterName(text))
		pid, errPid := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) > 1 && errPid == nil && fields[1] == fmt.Sprint(first) {
			all = append(all, pid)
		}
	}
	return all
}

// guard is a process that kills stopped processes if the test's process is killed.
// Without it, stopped children would not notice the end of their parent.
type guard struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func newGuard(pids []int) (*guard, error) {
	list := strings.Trim(fmt.Sprint(pids), "[]")
	cmd := exec.Command("sh", "-c", "read x; kill -KILL "+list)
	ownGroup(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &guard{cmd, in}, nil
}

func (g *guard) end() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	_ = g.in.Close()
}

// afterName returns the rest of a line of /proc/PID/stat, which has the form
// "pid (name) state parent …". The name can contain spaces and parentheses.
func afterName(stat []byte) string {
	return string(stat[bytes.LastIndexByte(stat, ')')+1:])
}
