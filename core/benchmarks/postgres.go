package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkit/lockkit/core/testserver"
)

type postgresServer struct {
	url   string
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
}

var errNoPostgres = errors.New("PostgreSQL is not installed (apt-get install postgresql, or brew install postgresql)")

// initdb returns the path of the program initdb, or "".
func initdb() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		return path
	}
	// Debian installs it in a separate directory.
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// startPostgres starts a server on a free port of 127.0.0.1, with the default settings
// except for address, socket, encoding, locale and authentication.
func startPostgres(ctx context.Context) (*postgresServer, error) {
	program := initdb()
	if program == "" {
		return nil, errNoPostgres
	}
	dir, err := os.MkdirTemp("", "benchmarks")
	if err != nil {
		return nil, err
	}
	setup := exec.Command(program, "-D", filepath.Join(dir, "data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	if err := asPostgres(setup, dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if out, err := setup.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w: %s", err, out), os.RemoveAll(dir))
	}
	// Another program may take the port before the server listens on it.
	for range 3 {
		var s *postgresServer
		if s, err = runPostgres(ctx, filepath.Join(filepath.Dir(program), "postgres"), dir); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

// runPostgres starts a server with the data in dir.
func runPostgres(ctx context.Context, program, dir string) (*postgresServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, err
	}
	s := &postgresServer{
		url: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port), dir: dir, ended: make(chan struct{}),
	}
	s.cmd = exec.Command(program, "-D", filepath.Join(dir, "data"),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "port="+strconv.Itoa(port))
	if err := asPostgres(s.cmd, dir); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		select {
		case <-s.ended:
			return nil, errors.New("PostgreSQL ended at once")
		default:
		}
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, s.url); err == nil {
			return s, conn.Close(ctx)
		}
	}
	s.end()
	return nil, err
}

// open returns a pool of conns connections to a database, and counts their writes.
func (s *postgresServer) open(ctx context.Context, database string, conns int, writes *atomic.Int64) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(s.url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(conns)
	s.count(config.ConnConfig, database, writes)
	return pgxpool.NewWithConfig(ctx, config)
}

// openSQL returns a pool like open, behind database/sql.
func (s *postgresServer) openSQL(database string, conns int, writes *atomic.Int64) (*sql.DB, error) {
	config, err := pgx.ParseConfig(s.url)
	if err != nil {
		return nil, err
	}
	s.count(config, database, writes)
	return sized(stdlib.OpenDB(*config), conns), nil
}

// count makes connections to a database count their writes.
func (s *postgresServer) count(config *pgx.ConnConfig, database string, writes *atomic.Int64) {
	config.Database = database
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countingConn{conn, writes}, nil
	}
}

// asPostgres makes the command run as a user that PostgreSQL accepts, because PostgreSQL
// refuses root. The command exits with this program.
func asPostgres(cmd *exec.Cmd, dir string) error {
	testserver.EndWithParent(cmd)
	cmd.Dir = dir
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, errU := strconv.Atoi(u.Uid)
	gid, errG := strconv.Atoi(u.Gid)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return errors.Join(errU, errG, os.Chown(dir, uid, gid))
}

func (s *postgresServer) end() {
	_ = s.cmd.Process.Signal(syscall.SIGQUIT) // an immediate shutdown, including the children
	<-s.ended
}

func (s *postgresServer) stop() error {
	s.end()
	return os.RemoveAll(s.dir)
}
