package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Pgbouncer is a pgbouncer process. The default here is pool_mode = transaction: after
// each transaction, another client may get the server connection. The process stops with
// the test.
type Pgbouncer struct {
	*Process
	Addr string // host:port, the same after a Restart
}

// StartPgbouncer starts a pgbouncer for the database of server. Clients use the
// database name postgres. StartPgbouncer returns when it has connected through the
// pgbouncer. Settings have the form of pgbouncer's configuration: "pool_mode =
// session". StartPgbouncer skips or fails the test like RequirePgbouncer.
func StartPgbouncer(t testing.TB, server *Postgres, settings ...string) *Pgbouncer {
	t.Helper()
	RequirePgbouncer(t)
	dir := postgresDir(t)
	b := &Pgbouncer{Process: newProcess(t, "pgbouncer", dir)}
	b.ready = func(int) bool {
		_, err := askPostgres(b.Addr, "postgres", 2*time.Second, "")
		return err == nil
	}
	b.command = func() (*exec.Cmd, error) {
		config := append([]string{
			"[databases]", fmt.Sprintf("postgres = host=127.0.0.1 port=%d dbname=%s user=postgres", portOf(server.Addr), server.database), "[pgbouncer]",
			"listen_addr = 127.0.0.1", fmt.Sprint("listen_port = ", portOf(b.Addr)), "unix_socket_dir =",
			"auth_type = any", "pool_mode = transaction", "max_client_conn = 500", "default_pool_size = 20",
		}, settings...)
		file := filepath.Join(dir, "pgbouncer.ini")
		cmd := exec.Command(program("pgbouncer"), file)
		cmd.Dir = dir
		if err := asPostgres(cmd); err != nil {
			return nil, err
		}
		return cmd, os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o644)
	}
	b.begin(func() { b.Addr = local(freePort(t)) })
	return b
}

// URL returns the address to connect through the pgbouncer; see Postgres.URL.
func (b *Pgbouncer) URL(parameters ...string) string {
	return postgresURL(b.Addr, "postgres", parameters)
}
