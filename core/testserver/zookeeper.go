package testserver

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The paths of the files in Debian's package zookeeper.
const (
	zooKeeperScript = "/usr/share/zookeeper/bin/zkServer.sh"
	zooKeeperJars   = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"
)

// zooKeeperClassPath is the file with Java's class path, in the directory that ServersDir
// names.
const zooKeeperClassPath = "zookeeper.classpath"

// ZooKeeperTick is the tick of the ZooKeeper servers that this package starts, unless a
// test sets another tick. Sessions last at least 2 ticks, and at most 400 times
// ZooKeeperTick.
const ZooKeeperTick = 200 * time.Millisecond

// ContainerCheck is the interval at which the ZooKeeper servers of this package remove
// empty containers.
const ContainerCheck = 500 * time.Millisecond

// ZooKeeper is a ZooKeeper server for one test, on a free port of 127.0.0.1. It stops
// with the test. Its methods fail the test if the server does not carry them out, and
// are safe for concurrent use.
type ZooKeeper struct {
	*Process
	Addr string // host:port for clients, the same after a Restart
	Dir  string // data and configuration, removed after the test

	tick  time.Duration
	extra string // additional lines of the configuration
}

// StartZooKeeper starts a single server and returns when it serves, after a second or
// two. It skips or fails the test like RequireZooKeeper.
func StartZooKeeper(t testing.TB) *ZooKeeper {
	t.Helper()
	RequireZooKeeper(t)
	s := newZooKeeper(t, ZooKeeperTick)
	s.begin(func() { s.Addr = local(freePort(t)) })
	return s
}

func newZooKeeper(t testing.TB, tick time.Duration) *ZooKeeper {
	t.Helper()
	dir := tempDir(t)
	s := &ZooKeeper{Process: newProcess(t, "zookeeper", dir), Dir: dir, tick: tick}
	s.command = s.java
	// Another server may answer on this port, so the path of the data is compared.
	s.ready = func(int) bool { return s.Mode() != "" && strings.Contains(s.Ask("conf"), s.Dir) }
	return s
}

// java writes the configuration and returns the command that starts the server.
func (s *ZooKeeper) java() (*exec.Cmd, error) {
	config := fmt.Sprintf(`tickTime=%d
dataDir=%s
clientPort=%d
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=*
maxClientCnxns=0
maxSessionTimeout=%d
initLimit=50
syncLimit=25
%s`, s.tick.Milliseconds(), s.Dir, portOf(s.Addr), 400*ZooKeeperTick.Milliseconds(), s.extra)
	file, jars := filepath.Join(s.Dir, "zoo.cfg"), zooKeeperJars
	if other := fromServersDir(zooKeeperClassPath); other != "" {
		text, err := os.ReadFile(other)
		if err != nil {
			return nil, err
		}
		jars = strings.TrimSpace(string(text))
	}
	cmd := exec.Command("java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=256",
		// Otherwise a server that waits alone for an election soon asks only once a
		// minute.
		"-Dzookeeper.fastleader.maxNotificationInterval=1000",
		fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", ContainerCheck.Milliseconds()),
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	cmd.Dir = s.Dir
	return cmd, os.WriteFile(file, []byte(config), 0o600)
}

// Ask sends one of ZooKeeper's four-letter words and returns the answer, or "" if no
// answer arrives within two seconds.
func (s *ZooKeeper) Ask(word string) string {
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

// Mode returns "standalone", "leader" or "follower", or "" while the server does not
// serve.
func (s *ZooKeeper) Mode() string {
	for line := range strings.Lines(s.Ask("srvr")) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}
