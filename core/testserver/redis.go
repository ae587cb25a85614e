package testserver

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Redis is a redis-server for one test, on a free port of 127.0.0.1 or on a host of a
// Net. It stops with the test. Its methods fail the test if the server does not carry
// them out, and are safe for concurrent use.
type Redis struct {
	*Process
	Addr string // host:port, the same after a Restart
	Dir  string // its working directory, removed after the test

	args []string
	env  []string // the process's variables, in addition to the test's
	host *Host    // the host on which it runs; nil: this machine
}

// StartRedis starts a server with the given arguments, in the form of redis-server's
// command line: "--maxmemory", "2mb". By default the server stores nothing on disk.
// StartRedis returns when the server answers. It skips or fails the test like
// RequireRedis.
func StartRedis(t testing.TB, args ...string) *Redis {
	t.Helper()
	return startRedis(t, &Redis{args: args})
}

// startRedis starts s, whose arguments, environment and host are set.
func startRedis(t testing.TB, s *Redis) *Redis {
	t.Helper()
	RequireRedis(t)
	s.Dir = tempDir(t)
	s.Process = newProcess(t, "redis-server", s.Dir)
	s.ready = s.answers
	s.command = func() (*exec.Cmd, error) {
		host, port, err := net.SplitHostPort(s.Addr)
		cmd := s.host.Command(program("redis-server"), append([]string{
			"--port", port, "--bind", host, "--dir", s.Dir,
			"--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0",
		}, s.args...)...)
		cmd.Env = append(os.Environ(), s.env...)
		return cmd, err
	}
	s.begin(func() {
		if s.Addr = local(freePort(t)); s.host != nil {
			s.Addr = s.host.addr(6379)
		}
	})
	return s
}

// answers reports whether the server with this process ID serves. Another server may
// answer on the same port. While a server loads its data, it answers INFO, but hardly
// any other command. An error reply to INFO counts as an answer.
func (s *Redis) answers(pid int) bool {
	info, err := askRedis(s.Addr, time.Second, "INFO")
	if errors.As(err, new(redisError)) {
		return true
	}
	return err == nil && infoField(info, "process_id") == strconv.Itoa(pid) && infoField(info, "loading") != "1"
}

// Port returns the port of Addr.
func (s *Redis) Port() int { return portOf(s.Addr) }

// Restart restarts the server like Process.Restart. args are added to the arguments with
// which the server was started.
func (s *Redis) Restart(args ...string) {
	s.t.Helper()
	s.mu.Lock()
	s.args = append(s.args[:len(s.args):len(s.args)], args...)
	s.mu.Unlock()
	s.Process.Restart()
}

// RestartEmpty restarts the server after deleting its files.
func (s *Redis) RestartEmpty(args ...string) {
	s.t.Helper()
	s.Kill()
	entries, err := os.ReadDir(s.Dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.Dir, e.Name())))
	}
	if err != nil {
		s.t.Fatalf("testserver: restart: %v", err)
	}
	s.Restart(args...)
}

// Do sends one command on a new connection and returns the reply: nil, string, int64,
// float64, bool, []any or map[any]any, according to RESP3. It fails the test on an
// error, and if the server does not answer within a minute.
func (s *Redis) Do(args ...any) any {
	s.t.Helper()
	v, err := askRedis(s.Addr, time.Minute, args...)
	if err != nil {
		s.t.Fatalf("testserver: %v: %v", args[0], err)
	}
	return v
}

// ask sends one command to a server that may be killed or paused, and returns the reply
// as text.
func (s *Redis) ask(args ...any) (string, error) {
	v, err := askRedis(s.Addr, 500*time.Millisecond, args...)
	text, _ := v.(string)
	return text, err
}

// Field returns the value of one line of the server's INFO: Field("replication", "role")
// is "master" or "slave". It returns "" if the line does not exist, or if the server
// does not answer within half a second.
func (s *Redis) Field(section, name string) string {
	info, err := s.ask("INFO", section)
	if err != nil {
		return ""
	}
	return infoField(info, name)
}

func infoField(info any, name string) string {
	text, _ := info.(string)
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return v
		}
	}
	return ""
}

// awaitLink waits until a replica is connected to its master and in sync.
func awaitLink(t testing.TB, replica *Redis) {
	t.Helper()
	Eventually(t, Settled, "the replica has caught up", func() bool {
		return replica.Field("replication", "master_link_status") == "up"
	})
}

// offset returns a position in the replication stream, from a field of the server's
// INFO, or -1.
func (s *Redis) offset(field string) int {
	n, err := strconv.Atoi(s.Field("replication", field))
	if err != nil {
		return -1
	}
	return n
}

// CutReplicas ensures that the replicas receive no write that master receives from now
// on. It pauses the replicas and closes their connections to the master, so that no
// write is buffered in the connections. Resume continues the replicas.
func CutReplicas(master *Redis, replicas ...*Redis) {
	master.t.Helper()
	for _, r := range replicas {
		r.Pause()
	}
	master.Do("CLIENT", "KILL", "TYPE", "replica")
}

func sorted(all []string) string {
	slices.Sort(all)
	return strings.Join(all, ",")
}
