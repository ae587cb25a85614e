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

// MariaDB is a MariaDB server for one test, or a MySQL server if the directory of
// ServersDir has one. It listens on a free port of 127.0.0.1, and the user root needs no
// password. It stops with the test. Its methods fail the test if the server does not
// carry them out, and are safe for concurrent use.
type MariaDB struct {
	*Process
	Addr string // host:port, the same after a Restart
	Dir  string // its data, removed after the test

	t        testing.TB // the test of this database
	database string
	env      []string // environment variables of the process, in addition to the test's
}

// mariaData is the data of a new MariaDB or MySQL server.
var mariaData = template{as: asSelf, initialize: func(dir string) error {
	if mysqld := fromServersDir("mysqld"); mysqld != "" {
		return initMySQL(mysqld, dir)
	}
	args := append([]string{
		"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=8M", "--innodb-use-native-aio=0",
		"--tmpdir=" + dir, // a server that starts deletes temporary tables in its tmpdir
	}, rootArgs()...)
	return runAs(asSelf, nil, program("mariadb-install-db"), args...)
}}

func initMySQL(mysqld, dir string) error {
	users := filepath.Join(dir, "users.sql")
	const root = "CREATE USER root@'127.0.0.1'; GRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
	if err := os.WriteFile(users, []byte(root), 0o600); err != nil {
		return err
	}
	args := append([]string{
		"--no-defaults", "--initialize-insecure", "--datadir=" + filepath.Join(dir, "data"), "--init-file=" + users,
		"--innodb-redo-log-capacity=16M", "--innodb-use-native-aio=0", "--tmpdir=" + dir,
	}, rootArgs()...)
	return runAs(asSelf, nil, mysqld, args...)
}

// IsMySQL reports whether the servers of StartMariaDB are MySQL.
func IsMySQL() bool { return fromServersDir("mysqld") != "" }

// asSelf makes a command run as the test's own user.
func asSelf(*exec.Cmd) error { return nil }

// rootArgs returns the arguments with which MariaDB agrees to run as root, or none if
// the test does not run as root.
func rootArgs() []string {
	if os.Getuid() != 0 {
		return nil
	}
	return []string{"--user=root"}
}

// StartMariaDB starts a server with the given settings, in the form of my.cnf:
// "max_connections = 20". As on a production server, commits are durable. StartMariaDB
// returns when the server answers. It skips or fails the test like RequireMariaDB.
func StartMariaDB(t testing.TB, settings ...string) *MariaDB {
	t.Helper()
	return startMariaDB(t, nil, settings)
}

// startMariaDB starts a server like StartMariaDB, and adds env to its environment.
func startMariaDB(t testing.TB, env, settings []string) *MariaDB {
	t.Helper()
	RequireMariaDB(t)
	s := &MariaDB{Dir: tempDir(t), t: t, database: "mysql", env: env}
	if err := mariaData.copyTo(s.Dir); err != nil {
		t.Fatalf("testserver: mariadb: %v", err)
	}
	data := filepath.Join(s.Dir, "data")
	name, group, logSize := "mariadbd", "[mariadbd]", "innodb_log_file_size = 8M"
	if IsMySQL() {
		name, group, logSize = "mysqld", "[mysqld]", "innodb_redo_log_capacity = 16M\nmysqlx = 0\nsecure_file_priv = NULL"
	}
	s.Process = newProcess(t, name, s.Dir)
	// Another server may answer on this port, so the data directories are compared.
	s.ready = func(int) bool {
		dir, err := askMySQL(s.Addr, s.database, 2*time.Second, "SELECT @@datadir")
		return err == nil && len(dir) == 1 && dir[0] == data+"/"
	}
	s.command = func() (*exec.Cmd, error) {
		config := append([]string{
			group, "bind_address = 127.0.0.1", fmt.Sprint("port = ", portOf(s.Addr)), "socket = " + filepath.Join(s.Dir, "socket"),
			"pid_file = " + filepath.Join(s.Dir, "pid"), "datadir = " + data, "tmpdir = " + s.Dir,
			"skip_name_resolve = 1", "innodb_buffer_pool_size = 16M", logSize, "innodb_use_native_aio = 0",
		}, settings...)
		file := filepath.Join(s.Dir, "my.cnf")
		cmd := exec.Command(program(name), append([]string{"--defaults-file=" + file}, rootArgs()...)...)
		cmd.Env = append(os.Environ(), s.env...)
		return cmd, os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600)
	}
	s.begin(func() { s.Addr = local(freePort(t)) })
	return s
}

// NewDatabase creates a database for one test on a server that several tests share. It
// returns a MariaDB for the same server, whose DSN and Exec use the new database. The
// database lasts as long as the server.
func (s *MariaDB) NewDatabase(t testing.TB) *MariaDB {
	t.Helper()
	d := &MariaDB{Process: s.Process, Addr: s.Addr, Dir: s.Dir, t: t, database: "test_" + strings.ToLower(rand.Text())}
	if _, err := askMySQL(s.Addr, s.database, patience, "CREATE DATABASE "+d.database); err != nil {
		t.Fatalf("testserver: mariadb: %v", err)
	}
	return d
}

// DSN returns the data source name by which go-sql-driver/mysql connects to the server.
// On MySQL, sessions wait at most one second for a row lock, as package sqlstore
// requires. Parameters are added unchanged: "autocommit=0".
func (s *MariaDB) DSN(parameters ...string) string { return s.DSNAt(s.Addr, parameters...) }

// DSNAt returns the data source name for addr, the address of a proxy of the server.
func (s *MariaDB) DSNAt(addr string, parameters ...string) string {
	if IsMySQL() {
		parameters = append([]string{"innodb_lock_wait_timeout=1"}, parameters...)
	}
	return fmt.Sprintf("root@tcp(%s)/%s?%s", addr, s.database, strings.Join(parameters, "&"))
}

// Exec runs statements, separated by semicolons, on a new connection. It returns the
// first column of the last statement's rows; a NULL is "". Exec fails the test on an
// error, and if the server does not answer within 20 seconds.
func (s *MariaDB) Exec(sql string) []string {
	s.t.Helper()
	column, err := askMySQL(s.Addr, s.database, patience, sql)
	if err != nil {
		s.t.Fatalf("testserver: %s: %v", sql, err)
	}
	return column
}
