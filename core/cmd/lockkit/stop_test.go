//go:build unix

package main_test

import (
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// ttl leaves a quarter of a second from SIGTERM to SIGKILL, and a quarter from SIGKILL
// to the expiry of the key, for a busy machine.
const ttl = 10 * time.Second

// heldBack starts the program with a worker and a child of the worker. Neither exits at
// SIGTERM.
func heldBack(t *testing.T, store string, args ...string) (p *holder) {
	t.Helper()
	p = &holder{command: file(t), child: file(t)}
	p.cmd = lockkit(t, store, append(append([]string{"run", "-ttl", ttl.String()}, args...),
		"--", self(t), "worker", p.command, "parent", p.child)...)
	p.process = testserver.StartProcess(t, p.cmd)
	awaitBegin(t, p.command)
	awaitBegin(t, p.child)
	return p
}

// holder is a run of the program whose command has a child.
type holder struct {
	cmd            *exec.Cmd
	process        *testserver.Process
	command, child string
}

// lastSign returns the last time at which the command or its child was alive.
func (h *holder) lastSign() int64 { return max(sign(h.command, signAlive), sign(h.child, signAlive)) }

// wantLost waits until the program exits, and checks that it reports the loss of the
// lock.
func (h *holder) wantLost(t *testing.T) {
	t.Helper()
	h.process.Wait(patience)
	if code := h.cmd.ProcessState.ExitCode(); code != 70 || !strings.Contains(h.process.Output(), "lock lost") {
		t.Errorf("exit code %d, %q", code, h.process.Output())
	}
	awaitEnd(t, h.command)
	awaitEnd(t, h.child)
}

// wantApart checks that the next command began after the first command and its child
// had exited. The first command and its child must have received SIGTERM.
func (h *holder) wantApart(t *testing.T, next string) {
	t.Helper()
	last, begin := h.lastSign(), sign(next, signBegin)
	if begin <= last {
		t.Errorf("the next command began %v before the last sign of the first", time.Duration(last-begin))
	}
	for _, f := range []string{h.command, h.child} {
		if sign(f, signTerm) == 0 {
			t.Error("the command or its child got no SIGTERM before it was killed")
		}
	}
	t.Logf("SIGTERM %v before its end, which was %v before the next began",
		time.Duration(sign(h.command, signAlive)-sign(h.command, signTerm)), time.Duration(begin-last))
}

func TestStop(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	t.Run("frozen server", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		h := heldBack(t, redisURL(server.Addr), "frozen:1")
		next := file(t)
		server.Pause()
		frozen := mono()
		// After this sleep the key has expired, so the next claim is granted.
		time.Sleep(time.Duration(frozen + int64(ttl) - mono()))
		thawed := mono()
		server.Resume()
		testserver.Eventually(t, patience, "the next one has the key", func() bool {
			return do(t, redisURL(server.Addr), "run", "frozen:1", "--", self(t), "worker", next, "once").code == 0
		})
		h.wantLost(t)
		h.wantApart(t, next)
		if last := h.lastSign(); last >= thawed {
			t.Errorf("it lived until %v after the key had expired", time.Duration(last-thawed))
		}
	})
	t.Run("cut off from the server", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewRedisProxy(t, server.Addr)
		h := heldBack(t, redisURL(proxy.Addr), "cut:1")
		next := file(t)
		startWorker(t, redisURL(server.Addr), next, "-wait", "5m", "cut:1")
		proxy.Partition()
		awaitBegin(t, next)
		h.wantLost(t)
		h.wantApart(t, next)
	})
	t.Run("earlier SIGTERM with a grace", func(t *testing.T) {
		t.Parallel()
		const grace = 2 * time.Second
		proxy := testserver.NewRedisProxy(t, server.Addr)
		h := heldBack(t, redisURL(proxy.Addr), "-grace", grace.String(), "grace:1")
		next := file(t)
		startWorker(t, redisURL(server.Addr), next, "-wait", "5m", "grace:1")
		proxy.Partition()
		awaitBegin(t, next)
		h.wantLost(t)
		h.wantApart(t, next)
		if d := time.Duration(sign(h.command, signAlive) - sign(h.command, signTerm)); d < grace/2 {
			t.Errorf("it had %v to end, want %v", d, grace)
		}
	})
	t.Run("deleted key", func(t *testing.T) {
		t.Parallel()
		h := heldBack(t, redisURL(server.Addr), "deleted:1")
		server.Do("DEL", "lk2:{deleted:1}")
		h.wantLost(t)
	})
	t.Run("server that answers", func(t *testing.T) {
		t.Parallel()
		store, f := redisURL(server.Addr), file(t)
		p := runWorker(t, store, f, "-ttl", "4s", "-grace", "1600ms", "long:1")
		begin := sign(f, signBegin)
		testserver.Eventually(t, patience, "it lives for three times the ttl", func() bool {
			return sign(f, signAlive)-begin > int64(12*time.Second)
		})
		do(t, store, "run", "long:1", "--", "true").want(t, 75, "busy")
		_ = syscall.Kill(p.Pid(), syscall.SIGTERM)
		p.Wait(patience)
	})
	t.Run("processes left behind", func(t *testing.T) {
		t.Parallel()
		store, f := redisURL(server.Addr), file(t)
		c := do(t, store, "run", "-ttl", ttl.String(), "left:1", "--", "sh", "-c",
			`"$0" worker "$1" stubborn >/dev/null 2>&1 & while [ ! -s "$1" ]; do sleep 0.01; done; exit 3`, self(t), f)
		c.want(t, 3, "")
		if pid := int(sign(f, signPid)); pid == 0 || runs(pid) {
			t.Errorf("process %d runs", pid)
		}
	})
}

func TestKilled(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	t.Run("program is killed", func(t *testing.T) {
		t.Parallel()
		store := redisURL(server.Addr)
		h := heldBack(t, store, "killed:1")
		next := file(t)
		startWorker(t, store, next, "-wait", "5m", "killed:1")
		_ = syscall.Kill(h.process.Pid(), syscall.SIGKILL)
		awaitEnd(t, h.command)
		awaitEnd(t, h.child)
		if sign(next, signBegin) != 0 {
			t.Log("only when the key had expired")
		}
		awaitBegin(t, next)
		if last, begin := h.lastSign(), sign(next, signBegin); begin <= last {
			t.Errorf("the next command began %v before the last sign of the first", time.Duration(last-begin))
		}
	})
	t.Run("processes in other groups", func(t *testing.T) {
		t.Parallel()
		if runtime.GOOS != "linux" {
			t.Skip("elsewhere only the group is stopped")
		}
		store := redisURL(server.Addr)
		for name, script := range map[string]string{
			// timeout leaves the group. The shell exits, or is ended by SIGTERM.
			"after exit":    `timeout -k 1m 1h "$0" worker "$1" stubborn >/dev/null 2>&1 & while [ ! -s "$1" ]; do sleep 0.01; done`,
			"after SIGTERM": `timeout -k 1m 1h "$0" worker "$1" stubborn`,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f, key := file(t), "groups:"+strconv.Itoa(len(name))
				cmd := lockkit(t, store, "run", "-ttl", ttl.String(), key, "--", "sh", "-c", script+"; true", self(t), f)
				p := testserver.StartProcess(t, cmd)
				awaitBegin(t, f)
				next := file(t)
				startWorker(t, store, next, "-wait", "5m", key)
				if name == "after SIGTERM" {
					_ = syscall.Kill(p.Pid(), syscall.SIGTERM)
				}
				p.Wait(patience)
				awaitBegin(t, next)
				if last, begin := sign(f, signAlive), sign(next, signBegin); begin <= last {
					t.Errorf("the next command began %v before the last sign of the first", time.Duration(last-begin))
				}
				if pid := int(sign(f, signPid)); runs(pid) {
					t.Errorf("process %d runs", pid)
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
		}
	})
	t.Run("limit of own sessions", func(t *testing.T) {
		t.Parallel()
		if _, err := exec.LookPath("setsid"); err != nil {
			t.Skip("there is no setsid here: it is in util-linux")
		}
		store, f := redisURL(server.Addr), file(t)
		do(t, store, "run", "session:1", "--", "sh", "-c",
			`setsid "$0" worker "$1" >/dev/null 2>&1 & while [ ! -s "$1" ]; do sleep 0.01; done`, self(t), f).want(t, 0, "")
		pid := int(sign(f, signPid))
		if pid == 0 || !runs(pid) {
			t.Error("it was stopped; if that is so now, the documentation promises too little")
		}
		if pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}
