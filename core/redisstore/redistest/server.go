package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/testserver"
)

// Server is a redis-server of a test's own, on a free port of 127.0.0.1. It
// ends with the test. Its methods fail the test if the server does not do as it
// is told, and are safe for concurrent use.
type Server struct {
	Addr string // host:port, the same after a Restart
	Dir  string // its working directory, removed after the test

	t    testing.TB
	args []string
	env  []string // of the process, on top of the test's own
	host *Host    // where it runs; nil: on this machine

	mu     sync.Mutex
	cmd    *exec.Cmd // nil when it is not running
	ended  chan struct{}
	paused bool
}

// Start runs a server with the given arguments, as on the command line of
// redis-server: "--maxmemory", "2mb". Without any it keeps nothing on disk. It
// skips the test if there is no redis-server, and fails it instead if the
// environment says LOCKKIT_REQUIRE_SERVERS=1.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, &Server{args: args})
}

// start runs a server that is new but for how it shall run.
func start(t testing.TB, s *Server) *Server {
	t.Helper()
	Require(t)
	s.t, s.Dir = t, tempDir(t)
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kill()
	})
	// Somebody else may take the port between the look and the start.
	for try := 1; ; try++ {
		if s.Addr = freeAddr(t); slices.Contains(s.args, "--cluster-enabled") {
			s.Addr = fixedAddr(t) // which leaves room for the cluster's bus
		}
		if s.host != nil {
			s.Addr = s.host.addr(6379)
		}
		err := s.run()
		if err == nil {
			return s
		}
		if try == 3 {
			t.Fatalf("redistest: %v", err)
		}
	}
}

// Require skips the test if there is no redis-server, or fails it if the
// environment says LOCKKIT_REQUIRE_SERVERS=1.
func Require(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err == nil {
		return
	}
	Missing(t, "redis-server is not installed (apt-get install redis-server, or brew install redis)")
}

// Missing skips the test for what this machine does not have, or fails it if the
// environment says LOCKKIT_REQUIRE_SERVERS=1.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("LOCKKIT_REQUIRE_SERVERS") == "1" {
		t.Fatal("redistest: " + what)
	}
	t.Skip(what)
}

// tempDir returns a directory that is removed after the test, also if a child of
// a killed server, which saves, still writes to it for a moment.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() {
		for range 100 {
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	return dir
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: no free port: %v", err)
	}
	defer l.Close()
	return l.Addr().String()
}

// run starts the process and waits until it answers. The caller holds mu.
func (s *Server) run() error {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	log := filepath.Join(s.Dir, "log")
	args := append([]string{"--port", port, "--bind", host, "--dir", s.Dir, "--logfile", log,
		"--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"}, s.args...)
	cmd := s.host.Command("redis-server", args...)
	cmd.Env = append(os.Environ(), s.env...)
	testserver.EndWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.paused, s.ended = cmd, false, make(chan struct{})
	go func(ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(s.ended)
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		select {
		case <-s.ended:
			s.cmd = nil
			text, _ := os.ReadFile(log)
			return fmt.Errorf("redis-server ended at once: %s", text)
		default:
		}
		if s.answers() {
			return nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	s.kill()
	return errors.New("redis-server does not answer")
}

// answers tells whether the server serves, and is ours: a server of another
// process may have been given the same port. It takes connections before it has
// loaded its data. A refusal is an answer too. The caller holds mu.
func (s *Server) answers() bool {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprint(conn, "PING\r\nINFO server\r\n")
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "-LOADING") {
			return false
		}
		if strings.HasPrefix(line, "-") {
			return true
		}
		if pid, ok := strings.CutPrefix(line, "process_id:"); ok {
			return strings.TrimSpace(pid) == strconv.Itoa(s.cmd.Process.Pid)
		}
	}
}

// Pid is the server's process id.
func (s *Server) Pid() int {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.t.Fatal("redistest: the server is not running")
	}
	return s.cmd.Process.Pid
}

// Port is the port of Addr.
func (s *Server) Port() int {
	_, port, _ := net.SplitHostPort(s.Addr)
	n, _ := strconv.Atoi(port)
	return n
}

// Pause stops the process as it stands: its connections stay open, and nothing
// is answered until Resume.
func (s *Server) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP, true)
}

// Resume lets a paused process go on.
func (s *Server) Resume() {
	s.t.Helper()
	s.signal(syscall.SIGCONT, false)
}

func (s *Server) signal(sig syscall.Signal, paused bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.t.Fatal("redistest: the server is not running")
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %v: %v", sig, err)
	}
	s.paused = paused
}

// Kill ends the process like a crash. What it had on disk stays.
func (s *Server) Kill() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
}

func (s *Server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.ended
	s.cmd = nil
}

// Restart kills the server if it runs and starts it again at the same address,
// with what it had on disk. Further arguments come on top of those of Start.
func (s *Server) Restart(args ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	s.args = append(s.args[:len(s.args):len(s.args)], args...)
	var err error
	for range 50 {
		if err = s.run(); err == nil {
			return
		}
		// The port can be taken for a moment by an outgoing connection.
		time.Sleep(100 * time.Millisecond)
	}
	s.t.Fatalf("redistest: restart: %v", err)
}

// RestartEmpty is Restart without what the server had on disk.
func (s *Server) RestartEmpty(args ...string) {
	s.t.Helper()
	s.mu.Lock()
	s.kill()
	entries, err := os.ReadDir(s.Dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(s.Dir, e.Name())))
	}
	s.mu.Unlock()
	if err != nil {
		s.t.Fatalf("redistest: restart: %v", err)
	}
	s.Restart(args...)
}

// Client returns a client of the server for the test's own questions. It is
// closed after the test.
func (s *Server) Client() *redis.Client {
	s.t.Helper()
	return Client(s.t, s.Addr)
}

// Client returns a client as a careful program configures it. edit may change
// the options. It is closed after the test.
func Client(t testing.TB, addr string, edit ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := &redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1}
	for _, e := range edit {
		e(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Do sends one command to the server and returns its answer, for what has no
// method of its own.
func (s *Server) Do(args ...any) any {
	s.t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	v, err := c.Do(ctx, args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		s.t.Fatalf("redistest: %v: %v", args[0], err)
	}
	return v
}

// Eventually fails the test unless ok becomes true within limit.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
