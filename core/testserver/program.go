package testserver

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// RequireRedis skips the test if Redis is not installed. With LOCKKIT_REQUIRE_SERVERS=1
// in the environment it fails the test instead. A function that starts a server calls
// the server's Require function. A test may call it before other work.
func RequireRedis(t testing.TB) {
	t.Helper()
	require(t, "redis-server is not installed (apt-get install redis-server, or brew install redis)", "redis-server")
}

// RequireZooKeeper skips or fails the test like RequireRedis, for ZooKeeper.
func RequireZooKeeper(t testing.TB) {
	t.Helper()
	const hint = "ZooKeeper is not installed (apt-get install zookeeper default-jre-headless)"
	require(t, hint, "java")
	if _, err := os.Stat(zooKeeperScript); err != nil && fromServersDir(zooKeeperClassPath) == "" {
		Missing(t, hint)
	}
}

// RequirePostgres skips or fails the test like RequireRedis, for PostgreSQL.
func RequirePostgres(t testing.TB) {
	t.Helper()
	require(t, "PostgreSQL is not installed (apt-get install postgresql, or brew install postgresql)", "initdb")
}

// RequirePgbouncer skips or fails the test like RequireRedis, for PostgreSQL and
// pgbouncer.
func RequirePgbouncer(t testing.TB) {
	t.Helper()
	RequirePostgres(t)
	require(t, "pgbouncer is not installed (apt-get install pgbouncer, or brew install pgbouncer)", "pgbouncer")
}

// RequireLua skips or fails the test like RequireRedis, for the interpreters of Lua 5.1
// and 5.4.
func RequireLua(t testing.TB) {
	t.Helper()
	require(t, "Lua is not installed (apt-get install lua5.1 lua5.4, or brew install lua@5.1 lua@5.4)", "lua5.1", "lua5.4")
}

// RequireSpin skips or fails the test like RequireRedis, for the model checker Spin and
// the C compiler that it needs.
func RequireSpin(t testing.TB) {
	t.Helper()
	require(t, "Spin is not installed (apt-get install spin gcc libc6-dev, or brew install spin)", "spin", "gcc")
}

// RequireMariaDB skips or fails the test like RequireRedis, for MariaDB, or for a MySQL
// in the directory of ServersDir.
func RequireMariaDB(t testing.TB) {
	t.Helper()
	if fromServersDir("mysqld") != "" {
		return
	}
	const hint = "MariaDB is not installed (apt-get install mariadb-server, or brew install mariadb)"
	require(t, hint, "mariadbd", "mariadb-install-db")
}

// RequireRabbitMQ skips or fails the test like RequireRedis, for RabbitMQ.
func RequireRabbitMQ(t testing.TB) {
	t.Helper()
	require(t, "RabbitMQ is not installed (apt-get install rabbitmq-server, or brew install rabbitmq)", "epmd", "rabbitmq-server")
}

func require(t testing.TB, hint string, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if program(name) == "" {
			Missing(t, hint)
		}
	}
}

// Missing skips the test because this machine lacks a program, or cannot do what the
// test needs. With LOCKKIT_REQUIRE_SERVERS=1 in the environment it fails the test
// instead. what is the reason, with the installation command of a missing program.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("LOCKKIT_REQUIRE_SERVERS") == "1" {
		t.Fatal("testserver: " + what)
	}
	t.Skip(what)
}

// ServersDir is the environment variable with a directory of server programs for tests
// on other versions. The programs in the directory take precedence over the machine's
// programs. Their names are redis-server, postgres and initdb, and mariadbd and
// mariadb-install-db, or mysqld instead of these two. The file zookeeper.classpath has
// Java's class path for ZooKeeper. The directory need not have all of these files.
const ServersDir = "LOCKKIT_SERVERS"

// fromServersDir returns the path of a file in the directory that ServersDir names, or
// "" if the file does not exist.
func fromServersDir(name string) string {
	dir := os.Getenv(ServersDir)
	if dir == "" {
		return ""
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// program returns the path of a program, or "". It searches the directory of ServersDir,
// PATH, Debian's directories for the versions of PostgreSQL, newest version first, and
// /usr/sbin.
func program(name string) string {
	if path := fromServersDir(name); path != "" {
		return path
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	all = append(all, "/usr/sbin/"+name)
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	slices.SortFunc(all, func(a, b string) int { return version(b) - version(a) })
	for _, path := range all {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// given contains the ports that freePort has returned. A server that is not ready yet
// does not listen on its port.
var given struct {
	sync.Mutex
	ports map[int]bool
}

// freePort returns a free port of 127.0.0.1. The port that is higher by 10,000 is free
// too, because a node of a Redis Cluster uses both ports. The two ports are below the
// kernel's range for outgoing connections, so that a server can be restarted on its
// port.
func freePort(t testing.TB) int {
	t.Helper()
	given.Lock()
	defer given.Unlock()
	if given.ports == nil || len(given.ports) > 5000 {
		given.ports = make(map[int]bool)
	}
	for range 1000 {
		port := 12000 + rand.N(10000)
		if !given.ports[port] && free(port) && free(port+10000) {
			given.ports[port] = true
			return port
		}
	}
	t.Fatal("testserver: no free port")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", local(port))
	return err == nil && l.Close() == nil
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func portOf(addr string) int {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return n
}

// tempDir returns a directory that is removed after the test. The removal is repeated
// for a moment, because a process that is exiting may still write to the directory.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "testserver")
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	t.Cleanup(func() { removeDir(dir) })
	return dir
}

func removeDir(dir string) {
	for range 100 {
		if os.RemoveAll(dir) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Eventually calls ok until ok returns true, and fails the test after limit. Between two
// calls it waits for 2 ms at first, and later for up to 20 ms. what completes the text
// "not within a minute: …".
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	pause := 2 * time.Millisecond
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		pause = min(pause*5/4, 20*time.Millisecond)
	}
}
