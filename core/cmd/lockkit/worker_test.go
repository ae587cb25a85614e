//go:build unix

package main_test

import (
	"encoding/binary"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// worker is a command that writes signs of life into a file. Each sign has eight
// bytes. Except for signPid, it is a time on the clock that all processes share.
const (
	signBegin = iota * 8
	signAlive
	signTerm // the first SIGTERM or SIGINT
	signPid
	signs
)

// work runs a worker. "worker FILE" exits at SIGTERM or SIGINT, and "worker FILE once"
// exits at once. "worker FILE stubborn" does not exit at these signals. "worker FILE
// parent FILE2" does not exit either, and has a stubborn child.
func work(args []string) int {
	file, err := os.OpenFile(args[0], os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return 3
	}
	note := func(at int64, v int64) {
		_, _ = file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(v)), at)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	stubborn := len(args) > 1
	if stubborn && args[1] == "parent" {
		if exec.Command(os.Args[0], "worker", args[2], "stubborn").Start() != nil {
			return 3
		}
	}
	note(signPid, int64(os.Getpid()))
	note(signBegin, mono())
	for begin := time.Now(); time.Since(begin) < 3*time.Minute; {
		note(signAlive, mono())
		if stubborn && args[1] == "once" {
			return 0
		}
		select {
		case <-signals:
			note(signTerm, mono())
			if !stubborn {
				return 0
			}
			signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		case <-time.After(time.Millisecond):
		}
	}
	return 4 // was not stopped
}

// sign returns one of the signs of life in a file, or 0 if it is absent.
func sign(file string, at int) int64 {
	all, _ := os.ReadFile(file)
	if len(all) < at+8 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(all[at:]))
}

func awaitBegin(t testing.TB, file string) {
	t.Helper()
	testserver.Eventually(t, patience, "the command runs", func() bool { return sign(file, signAlive) > 0 })
}

// awaitEnd waits until the worker of the file has exited or is a zombie.
func awaitEnd(t testing.TB, file string) {
	t.Helper()
	pid := int(sign(file, signPid))
	testserver.Eventually(t, patience, "the process has exited", func() bool { return !runs(pid) })
}

func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && len(out) > 0 && out[0] != 'Z'
}
