package testserver_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func create(t testing.TB, conn *zk.Conn, path string) {
	t.Helper()
	if _, err := conn.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatalf("create %s: %v", path, err)
	}
}

func exists(t testing.TB, conn *zk.Conn, path string) bool {
	t.Helper()
	there, _, err := conn.Exists(path)
	if err != nil {
		t.Fatalf("exists %s: %v", path, err)
	}
	return there
}

func listens(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func TestZooKeeper(t *testing.T) {
	t.Parallel()
	// A paused server does not answer, and continues after Resume with its state.
	t.Run("paused server", func(t *testing.T) {
		t.Parallel()
		s := testserver.StartZooKeeper(t)
		if mode := s.Mode(); mode != "standalone" {
			t.Errorf("its mode is %q", mode)
		}
		conn := testclient.ZooKeeper(t, session, s.Addr)
		s.Pause()
		// The last of the server's threads stops a moment after the signal was sent.
		eventually(t, "it is silent", func() bool { return s.Ask("ruok") == "" })
		done := make(chan error, 1)
		go func() {
			_, err := conn.Create("/paused", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
			done <- err
		}()
		if answer := s.Ask("ruok"); answer != "" {
			t.Errorf("it says %q", answer)
		}
		select {
		case err := <-done:
			t.Errorf("a request was answered: %v", err)
		default:
		}
		s.Resume()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	// A killed server does not listen. After a restart it listens at the same address,
	// and has its confirmed writes.
	t.Run("killed server", func(t *testing.T) {
		t.Parallel()
		s := testserver.StartZooKeeper(t)
		// The client connects through a proxy, which is down until the server serves. A
		// server of version 3.8 can accept an earlier connection and never answer on it.
		// The client would then wait for minutes.
		proxy := testserver.NewZooKeeperProxy(t, s.Addr)
		conn := testclient.ZooKeeper(t, session, proxy.Addr)
		create(t, conn, "/kept")
		old := conn.SessionID()
		proxy.Down()
		s.Kill()
		if listens(s.Addr) || s.Mode() != "" {
			t.Error("it answers")
		}
		s.Restart()
		proxy.Up()
		// The client's state can be the state of its old connection. Only an answer shows
		// that the client is connected again.
		there := false
		eventually(t, "the client is answered", func() bool {
			var err error
			there, _, err = conn.Exists("/kept")
			return err == nil
		})
		if !there || conn.SessionID() != old {
			t.Error("what it had confirmed is gone")
		}
	})
	// Sessions can be as short as two ticks.
	t.Run("short sessions", func(t *testing.T) {
		t.Parallel()
		server := testserver.SharedZooKeeper(t)
		watcher := testclient.ZooKeeper(t, session, server)
		proxy := testserver.NewZooKeeperProxy(t, server)
		conn := testclient.ZooKeeper(t, testserver.ZooKeeperTick, proxy.Addr)
		// The session can have expired.
		eventually(t, "there is a node of a session that lives", func() bool {
			_, err := conn.Create("/short", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
			return err == nil
		})
		start := time.Now()
		proxy.Down()
		eventually(t, "the session has expired", func() bool { return !exists(t, watcher, "/short") })
		if took := time.Since(start); took > patience/2 {
			t.Errorf("that took %v", took)
		}
	})
	t.Run("empty containers", func(t *testing.T) {
		t.Parallel()
		server := testserver.SharedZooKeeper(t)
		conn := testclient.ZooKeeper(t, session, server)
		if _, err := conn.CreateContainer("/box", nil, zk.FlagContainer, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
		create(t, conn, "/box/content")
		if err := conn.Delete("/box/content", -1); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is gone", func() bool { return !exists(t, conn, "/box") })
	})
}

// TestShared checks the shared server. It is not parallel, because it must be the
// server's only user.
func TestShared(t *testing.T) {
	var addr string
	t.Run("one server", func(t *testing.T) {
		addr = testserver.SharedZooKeeper(t)
		t.Run("outlives its users", func(t *testing.T) {
			if again := testserver.SharedZooKeeper(t); again != addr {
				t.Errorf("they have %s and %s", addr, again)
			}
		})
		create(t, testclient.ZooKeeper(t, session, addr), "/shared")
	})
	if listens(addr) {
		t.Error("it outlives the last one")
	}
	t.Run("later tests", func(t *testing.T) {
		if exists(t, testclient.ZooKeeper(t, session, testserver.SharedZooKeeper(t)), "/shared") {
			t.Error("it has the nodes of the first")
		}
	})
}

// diesWith is an environment variable. With it, a copy of this test starts a server,
// prints the server's address, and waits.
const diesWith = "TESTSERVER_DIES_WITH"

// TestZooKeeper_TestProcessDies checks that no server keeps running after a test
// process was killed.
func TestZooKeeper_TestProcessDies(t *testing.T) {
	if os.Getenv(diesWith) != "" {
		os.Stdout.WriteString("\nserver " + testserver.StartZooKeeper(t).Addr + "\n")
		select {}
	}
	t.Parallel()
	testserver.RequireZooKeeper(t)
	child := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "5m")
	child.Env = append(os.Environ(), diesWith+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var addr string
	for lines := bufio.NewScanner(out); addr == "" && lines.Scan(); {
		addr, _ = strings.CutPrefix(lines.Text(), "server ")
		if addr == lines.Text() {
			addr = ""
		}
	}
	if addr == "" || !listens(addr) {
		t.Errorf("there is no server at %q", addr)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	eventually(t, "the server has exited", func() bool { return !listens(addr) })
}
