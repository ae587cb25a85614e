package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/testserver"
)

// zookeeperServer is a ZooKeeper server that the program starts, with the default
// settings except for tick, heap, address, log and admin server. The server waits for
// its disk.
type zookeeperServer struct {
	addr  string
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// zookeeperJars are the files that the server needs from Debian's package.
const zookeeperJars = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"

var errNoZookeeper = errors.New("ZooKeeper is not installed (apt-get install zookeeper default-jre-headless)")

func hasZookeeper() bool {
	_, err := os.Stat("/usr/share/zookeeper/bin/zkServer.sh")
	_, java := exec.LookPath("java")
	return err == nil && java == nil
}

// startZookeeper starts a server on a free port of 127.0.0.1.
func startZookeeper(ctx context.Context) (s *zookeeperServer, err error) {
	if !hasZookeeper() {
		return nil, errNoZookeeper
	}
	// Another program may take the port before the server listens on it.
	for range 3 {
		if s, err = runZookeeper(ctx); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func runZookeeper(ctx context.Context) (s *zookeeperServer, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s = &zookeeperServer{addr: l.Addr().String(), ended: make(chan struct{})}
	_, port, _ := net.SplitHostPort(s.addr)
	if err := l.Close(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "benchmarks"); err != nil {
		return nil, err
	}
	file := filepath.Join(s.dir, "zoo.cfg")
	config := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPort=%s\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n", s.dir, port)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	s.cmd = exec.CommandContext(ctx, "java", "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.logFile="+filepath.Join(s.dir, "log"),
		"-cp", zookeeperJars, "org.apache.zookeeper.server.quorum.QuorumPeerMain", file)
	s.cmd.Dir = s.dir
	testserver.EndWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	conn, err := s.connect(net.DialTimeout) // waits until the server serves
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	conn.Close()
	return s, nil
}

func (s *zookeeperServer) stop() error {
	_ = s.cmd.Process.Kill()
	<-s.ended
	return os.RemoveAll(s.dir)
}

type noLog struct{}

func (noLog) Printf(string, ...any) {}

// connect returns a client that has a session.
func (s *zookeeperServer) connect(dial zk.Dialer) (*zk.Conn, error) {
	conn, _, err := zk.Connect([]string{s.addr}, ttl, zk.WithLogger(noLog{}), zk.WithLogInfo(false), zk.WithDialer(dial))
	if err != nil {
		return nil, err
	}
	for stop := time.Now().Add(2 * time.Minute); conn.State() != zk.StateHasSession; time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.ended:
			conn.Close()
			text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return nil, fmt.Errorf("the ZooKeeper server ended: %s", text)
		default:
		}
		if time.Now().After(stop) {
			conn.Close()
			return nil, errors.New("the ZooKeeper server does not serve")
		}
	}
	return conn, nil
}
