package zktest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

// Where Debian's package zookeeper puts what is needed.
const (
	script = "/usr/share/zookeeper/bin/zkServer.sh"
	jars   = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
)

// Tick is the servers' tick. Sessions last 2 ticks at least and 400 at most.
const Tick = 200 * time.Millisecond

// ContainerCheck is how often the servers remove empty containers.
const ContainerCheck = 500 * time.Millisecond

// startLimit is how long a server may take to serve: on a busy machine, three of
// them that start together take their time.
const startLimit = 2 * time.Minute

// Server is a ZooKeeper server of a test's own. Its methods fail the test if
// the server does not do as it is told, and are safe for concurrent use.
type Server struct {
	Addr string // host:port for clients, the same after a Restart
	Dir  string // data, configuration and log, removed after the test

	t     testing.TB
	tick  time.Duration
	extra string // lines of the configuration

	mu     sync.Mutex
	cmd    *exec.Cmd // nil when it is not running
	ended  chan struct{}
	paused bool
}

// Start runs one server by itself and waits until it serves. It skips the test
// if ZooKeeper is not installed, and fails it instead if the environment says
// LOCKKIT_REQUIRE_SERVERS=1.
func Start(t testing.TB) *Server {
	t.Helper()
	Require(t)
	s := newServer(t)
	// Somebody else may take the port between the look and the start.
	for try := 1; ; try++ {
		s.Addr = freeAddr(t)
		err := s.start()
		if err == nil {
			err = s.await(startLimit)
		}
		if err == nil {
			return s
		}
		s.Kill()
		if try == 3 {
			t.Fatalf("zktest: %v", err)
		}
	}
}

// Require skips the test if ZooKeeper is not installed, or fails it if the
// environment says LOCKKIT_REQUIRE_SERVERS=1.
func Require(t testing.TB) {
	t.Helper()
	_, err := os.Stat(script)
	if err == nil {
		_, err = exec.LookPath("java")
	}
	if err == nil {
		return
	}
	what := "ZooKeeper is not installed (apt-get install zookeeper default-jre-headless)"
	if os.Getenv("LOCKKIT_REQUIRE_SERVERS") == "1" {
		t.Fatal("zktest: " + what)
	}
	t.Skip(what)
}

func newServer(t testing.TB) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "zktest")
	if err != nil {
		t.Fatalf("zktest: %v", err)
	}
	s := &Server{t: t, Dir: dir, tick: Tick}
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	})
	return s
}

func freeAddr(t testing.TB) string {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

// listen takes a free port.
func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("zktest: no free port: %v", err)
	}
	return l
}

// start writes the configuration and starts the process.
func (s *Server) start() error {
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	config := fmt.Sprintf(`tickTime=%d
dataDir=%s
clientPort=%s
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=*
maxClientCnxns=0
maxSessionTimeout=%d
initLimit=50
syncLimit=25
%s`, s.tick.Milliseconds(), s.Dir, port, 400*Tick.Milliseconds(), s.extra)
	file := filepath.Join(s.Dir, "zoo.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	cmd := exec.Command("java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=256",
		"-Dzookeeper.fastleader.maxNotificationInterval=1000", // or who elects alone soon asks once a minute only
		fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", ContainerCheck.Milliseconds()),
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.logFile="+filepath.Join(s.Dir, "log"),
		"-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	cmd.Dir = s.Dir
	testserver.EndWithParent(cmd)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	s.cmd, s.ended, s.paused = cmd, ended, false
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	return nil
}

// await waits until the server serves clients.
func (s *Server) await(limit time.Duration) error {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	for stop := time.Now().Add(limit); time.Now().Before(stop); time.Sleep(10 * time.Millisecond) {
		select {
		case <-ended:
			text, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			return fmt.Errorf("the server ended at once: %s", text)
		default:
		}
		// A server of another test may have been given the same port.
		if s.Mode() != "" && strings.Contains(s.Ask("conf"), s.Dir) {
			return nil
		}
	}
	return errors.New("the server does not serve")
}

// Ask sends one of ZooKeeper's four-letter words and returns the answer, which
// is empty if there is none.
func (s *Server) Ask(word string) string {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(conn, word); err != nil {
		return ""
	}
	text, _ := io.ReadAll(conn)
	return string(text)
}

// Mode is "standalone", "leader" or "follower", and empty while the server does
// not serve.
func (s *Server) Mode() string {
	for line := range strings.Lines(s.Ask("srvr")) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

// Kill ends the server as a crash does (SIGKILL).
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.ended
	s.cmd = nil
}

// Restart runs a server that was killed again, on the same data, and waits until
// it serves.
func (s *Server) Restart() {
	s.t.Helper()
	for stop := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := s.start()
		if err == nil {
			err = s.await(startLimit)
		}
		if err == nil {
			return
		}
		s.Kill()
		// The port can be taken for a moment by an outgoing connection.
		if time.Now().After(stop) {
			s.t.Fatalf("zktest: restart: %v", err)
		}
	}
}

// Pause stops the process where it stands (SIGSTOP). Its connections stay open
// and nothing is answered.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP, true) }

// Resume lets a paused process go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT, false) }

func (s *Server) signal(sig syscall.Signal, paused bool) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.t.Fatal("zktest: the server is not running")
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("zktest: %v", err)
	}
	s.paused = paused
}
