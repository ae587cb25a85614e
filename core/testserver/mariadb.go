package testserver

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// MariaDB is a MariaDB server of a test's own, on a free port of 127.0.0.1, where the
// user root needs no password. It stops with the test. Its methods fail the test if the
// server does not carry them out, and are safe for concurrent use.
type MariaDB struct {
	*Process
	Addr string // host:port, the same after a Restart
	Dir  string // its data, removed after the test

	t        testing.TB // of this database
	database string
	env      []string // of the process, on top of the test's own
}

// mariaData is the data of a new MariaDB server.
var mariaData = template{as: asSelf, initialize: func(dir string) error {
	args := append([]string{
		"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=8M", "--innodb-use-native-aio=0",
	}, rootArgs()...)
	return runAs(asSelf, nil, program("mariadb-install-db"), args...)
}}

// asSelf makes a command run as the test's own user.
func asSelf(*exec.Cmd) error { return nil }

// rootArgs returns the arguments by which MariaDB runs as root.
func rootArgs() []string {
	if os.Getuid() != 0 {
		return nil
	}
	return []string{"--user=root"}
}

// StartMariaDB starts a server with the given settings, as in the group [mariadbd] of my.cnf:
// "max_connections = 20". Its commits are durable, as on a server in production. It
// returns when the server answers. It skips the test if MariaDB is not installed, and
// fails it instead if the environment says LOCKKIT_REQUIRE_SERVERS=1.
func StartMariaDB(t testing.TB, settings ...string) *MariaDB {
	t.Helper()
	return startMariaDB(t, nil, settings)
}

// startMariaDB starts a server like StartMariaDB, with more for its environment.
func startMariaDB(t testing.TB, env, settings []string) *MariaDB {
	t.Helper()
	RequireMariaDB(t)
	s := &MariaDB{Dir: tempDir(t), t: t, database: "mysql", env: env}
	if err := mariaData.copyTo(s.Dir); err != nil {
		t.Fatalf("testserver: mariadb: %v", err)
	}
	data := filepath.Join(s.Dir, "data")
	s.Process = newProcess(t, "mariadbd", s.Dir)
	// Another server may have the same port.
	s.ready = func(int) bool {
		dir, err := askMySQL(s.Addr, s.database, 2*time.Second, "SELECT @@datadir")
		return err == nil && len(dir) == 1 && dir[0] == data+"/"
	}
	s.command = func() (*exec.Cmd, error) {
		config := append([]string{
			"[mariadbd]", "bind_address = 127.0.0.1", fmt.Sprint("port = ", portOf(s.Addr)), "socket = " + filepath.Join(s.Dir, "socket"),
			"pid_file = " + filepath.Join(s.Dir, "pid"), "datadir = " + data, "tmpdir = " + s.Dir,
			"skip_name_resolve = 1", "innodb_buffer_pool_size = 16M", "innodb_log_file_size = 8M", "innodb_use_native_aio = 0",
		}, settings...)
		file := filepath.Join(s.Dir, "my.cnf")
		cmd := exec.Command(program("mariadbd"), append([]string{"--defaults-file=" + file}, rootArgs()...)...)
		cmd.Env = append(os.Environ(), s.env...)
		return cmd, os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600)
	}
	s.begin(func() { s.Addr = local(freePort(t)) })
	return s
}

// NewDatabase makes a database for one test on a server that several share. The
// MariaDB that it returns is that server, except for DSN and Exec, which are about the
// database. The database lasts as long as the server.
func (s *MariaDB) NewDatabase(t testing.TB) *MariaDB {
	t.Helper()
	d := &MariaDB{Process: s.Process, Addr: s.Addr, Dir: s.Dir, t: t, database: "test_" + strings.ToLower(rand.Text())}
	if _, err := askMySQL(s.Addr, s.database, patience, "CREATE DATABASE "+d.database); err != nil {
		t.Fatalf("testserver: mariadb: %v", err)
	}
	return d
}

// DSN returns the data source name by which go-sql-driver/mysql connects to the server.
// Parameters are added unchanged: "autocommit=0".
func (s *MariaDB) DSN(parameters ...string) string { return s.DSNAt(s.Addr, parameters...) }

// DSNAt returns the name of DSN through a proxy of the server at addr.
func (s *MariaDB) DSNAt(addr string, parameters ...string) string {
	return fmt.Sprintf("root@tcp(%s)/%s?%s", addr, s.database, strings.Join(parameters, "&"))
}

// Exec runs statements, separated by semicolons, on a connection of its own. It returns
// the first column of the last one's rows; a NULL is "". An error fails the test, as
// does a server that does not answer within 20 seconds.
func (s *MariaDB) Exec(sql string) []string {
	s.t.Helper()
	column, err := askMySQL(s.Addr, s.database, patience, sql)
	if err != nil {
		s.t.Fatalf("testserver: %s: %v", sql, err)
	}
	return column
}
