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

// Postgres is a PostgreSQL server for one test. It listens on a free port of 127.0.0.1,
// and the user postgres needs no password. It stops with the test. Its methods fail the
// test if the server does not carry them out, and are safe for concurrent use. Pause,
// Resume and Kill apply to all processes of the server.
type Postgres struct {
	*Process
	Addr string // host:port, the same after a Restart
	Dir  string // its data, removed after the test

	t        testing.TB // the test of this database
	database string
}

// StartPostgres starts a server with the given settings, in the form of
// postgresql.conf: "max_connections = 20". Commits do not wait for the disk, so a crash
// of the machine could lose them. StartPostgres returns when the server answers. It
// skips or fails the test like RequirePostgres.
func StartPostgres(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	return startPostgres(t, nil, settings)
}

// startPostgres starts a server like StartPostgres, and adds env to its environment.
func startPostgres(t testing.TB, env, settings []string) *Postgres {
	t.Helper()
	RequirePostgres(t)
	s := &Postgres{Dir: postgresDir(t), t: t, database: "postgres"}
	if err := postgresData.copyTo(s.Dir); err != nil {
		t.Fatalf("testserver: postgres: %v", err)
	}
	data := filepath.Join(s.Dir, "data")
	s.Process = newProcess(t, "postgres", s.Dir)
	s.tree = true
	// Another server may answer on this port, so the data directories are compared.
	s.ready = func(int) bool {
		dir, err := askPostgres(s.Addr, s.database, 2*time.Second, "SHOW data_directory")
		return err == nil && len(dir) == 1 && dir[0] == data
	}
	s.command = func() (*exec.Cmd, error) {
		config := append([]string{
			"listen_addresses = '127.0.0.1'", fmt.Sprint("port = ", portOf(s.Addr)), "unix_socket_directories = ''",
			"fsync = off", "full_page_writes = off", "shared_buffers = 16MB", "max_connections = 100", "min_wal_size = 2MB",
			"max_wal_size = 256MB", "autovacuum_naptime = 5s", "dynamic_shared_memory_type = mmap", "lc_messages = 'C'",
			"huge_pages = off", "max_worker_processes = 2",
		}, settings...)
		cmd := exec.Command(program("postgres"), "-D", data)
		cmd.Dir = s.Dir
		cmd.Env = append(os.Environ(), env...)
		if err := asPostgres(cmd); err != nil {
			return nil, err
		}
		file := filepath.Join(data, "postgresql.conf")
		return cmd, os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600)
	}
	s.begin(func() { s.Addr = local(freePort(t)) })
	return s
}

// NewDatabase creates a database for one test on a server that several tests share. It
// returns a Postgres for the same server and the new database. URL, Exec and
// StartPgbouncer use this database. Settings apply to the sessions of the database:
// "TimeZone = 'UTC'". The database lasts as long as the server.
func (s *Postgres) NewDatabase(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	d := &Postgres{Process: s.Process, Addr: s.Addr, Dir: s.Dir, t: t, database: "test_" + strings.ToLower(rand.Text())}
	statements := append([]string{"CREATE DATABASE " + d.database}, settings...)
	for i, setting := range statements {
		if i > 0 {
			setting = "ALTER DATABASE " + d.database + " SET " + setting
		}
		if _, err := askPostgres(s.Addr, s.database, patience, setting); err != nil {
			t.Fatalf("testserver: %s: %v", setting, err)
		}
	}
	return d
}

// URL returns the address to connect to the server. Parameters are added unchanged:
// "pool_max_conns=4".
func (s *Postgres) URL(parameters ...string) string { return s.URLAt(s.Addr, parameters...) }

// URLAt returns the URL for addr, the address of a proxy of the server.
func (s *Postgres) URLAt(addr string, parameters ...string) string {
	return postgresURL(addr, s.database, parameters)
}

func postgresURL(addr, database string, parameters []string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?%s",
		addr, database, strings.Join(append([]string{"sslmode=disable"}, parameters...), "&"))
}

// Exec runs statements on a new connection and returns the first column of the last
// statement's rows. Exec fails the test on an error, and if the server does not answer
// within 20 seconds.
func (s *Postgres) Exec(sql string) []string {
	s.t.Helper()
	column, err := askPostgres(s.Addr, s.database, patience, sql)
	if err != nil {
		s.t.Fatalf("testserver: %s: %v", sql, err)
	}
	return column
}
