package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockkit/lockkit/core/testserver"
)

type mariaServer struct {
	addr  string
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// mariaFirst is a database that a new server has.
const mariaFirst = "test"

var errNoMariaDB = errors.New("MariaDB is not installed (apt-get install mariadb-server, or brew install mariadb)")

// mariaProgram returns the path of a program of MariaDB, or "".
func mariaProgram(name string) string {
	// Debian's servers are not on the path of every user.
	for _, name := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func hasMariaDB() bool {
	return mariaProgram("mariadbd") != "" && mariaProgram("mariadb-install-db") != ""
}

// startMariaDB starts a server on a free port of 127.0.0.1, with the default settings
// except for paths, address, name resolution, native I/O and the authentication of root.
// A commit waits for the disk. The server has an empty database mariaFirst.
func startMariaDB(ctx context.Context) (*mariaServer, error) {
	if !hasMariaDB() {
		return nil, errNoMariaDB
	}
	dir, err := os.MkdirTemp("", "benchmarks")
	if err != nil {
		return nil, err
	}
	setup := exec.Command(mariaProgram("mariadb-install-db"), mariaArgs(dir, "--auth-root-authentication-method=normal", "--tmpdir="+dir)...)
	testserver.EndWithParent(setup)
	if out, err := setup.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("mariadb-install-db: %w: %s", err, out), os.RemoveAll(dir))
	}
	// Another program may take the port before the server listens on it.
	for range 3 {
		var s *mariaServer
		if s, err = runMariaDB(ctx, dir); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

// mariaArgs returns the arguments of a program that works on the data in dir. Not every
// container allows native asynchronous I/O.
func mariaArgs(dir string, more ...string) []string {
	args := append([]string{"--no-defaults", "--datadir=" + filepath.Join(dir, "data"), "--skip-name-resolve", "--innodb-use-native-aio=0"}, more...)
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	return args
}

// runMariaDB starts a server with the data in dir.
func runMariaDB(ctx context.Context, dir string) (*mariaServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &mariaServer{addr: l.Addr().String(), dir: dir, ended: make(chan struct{})}
	if err := l.Close(); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(s.addr)
	s.cmd = exec.Command(mariaProgram("mariadbd"), mariaArgs(dir, "--bind-address=127.0.0.1", "--port="+port,
		"--socket="+filepath.Join(dir, "socket"), "--pid-file="+filepath.Join(dir, "pid"), "--tmpdir="+dir)...)
	testserver.EndWithParent(s.cmd)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.ended)
	}()
	control, err := s.open("", 1, new(atomic.Int64))
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	defer control.Close()
	err = errors.New("MariaDB does not answer")
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		select {
		case <-s.ended:
			return nil, errors.New("MariaDB ended at once")
		default:
		}
		// A server of another process may have the same port.
		var data string
		if err = control.QueryRowContext(ctx, "SELECT @@datadir").Scan(&data); err == nil && filepath.Clean(data) == filepath.Join(dir, "data") {
			return s, nil
		}
	}
	return nil, errors.Join(err, s.end())
}

// open returns a pool of conns connections to a database, and counts their writes. The
// pool puts the parameters of a statement into the statement's text. This saves a round
// trip for a statement that is not prepared.
func (s *mariaServer) open(database string, conns int, writes *atomic.Int64) (*sql.DB, error) {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName, config.InterpolateParams = "root", "tcp", s.addr, database, true
	config.Logger = &mysql.NopLogger{} // a server that is starting refuses connections
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countingConn{conn, writes}, nil
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sized(sql.OpenDB(connector), conns), nil
}

// sized limits a pool to a number of connections, and keeps them open.
func sized(db *sql.DB, conns int) *sql.DB {
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db
}

func (s *mariaServer) end() error {
	err := s.cmd.Process.Kill()
	<-s.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (s *mariaServer) stop() error { return errors.Join(s.end(), os.RemoveAll(s.dir)) }
