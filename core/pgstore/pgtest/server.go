package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/testserver"
)

// Server is a PostgreSQL server of a test's own, on a free port of 127.0.0.1,
// where the user postgres needs no password. It ends with the test. Its methods
// fail the test if the server does not do as it is told, and are safe for
// concurrent use.
type Server struct {
	Port int // the same after a Restart
	Dir  string

	t        testing.TB
	settings []string

	mu    sync.Mutex
	cmd   *exec.Cmd // nil when it is not running
	ended chan struct{}
	guard *guard // while it is paused
}

// Start runs a server with the given settings, as in postgresql.conf:
// "max_connections = 20". It writes to disk without waiting for it, which only a
// crash of the machine would show.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	Require(t)
	s := &Server{t: t, Dir: tempDir(t), settings: settings}
	if err := newData(s.Dir); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kill()
	})
	// Somebody else may take the port between the look and the start.
	for try := 1; ; try++ {
		port, err := freePort()
		if err == nil {
			s.Port = port
			if err = s.run(); err == nil {
				return s
			}
		}
		if try == 3 {
			t.Fatalf("pgtest: %v", err)
		}
	}
}

// URL is how to connect to the server. Parameters are added as they are:
// "pool_max_conns=4".
func (s *Server) URL(parameters ...string) string {
	return address(s.Port, parameters)
}

func address(port int, parameters []string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?%s",
		port, strings.Join(append([]string{"sslmode=disable"}, parameters...), "&"))
}

// run starts the process and waits until it answers. The caller holds mu.
func (s *Server) run() error {
	config := append([]string{
		"listen_addresses = '127.0.0.1'", "port = " + strconv.Itoa(s.Port), "unix_socket_directories = ''",
		"fsync = off", "full_page_writes = off", "shared_buffers = 16MB", "max_connections = 100", "min_wal_size = 2MB",
		"max_wal_size = 256MB", "autovacuum_naptime = 5s", "dynamic_shared_memory_type = mmap", "lc_messages = 'C'",
		"huge_pages = off", "max_worker_processes = 2",
	}, s.settings...)
	file := filepath.Join(s.Dir, "data", "postgresql.conf")
	if err := os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program("postgres"), "-D", filepath.Join(s.Dir, "data"))
	if err := as(cmd); err != nil {
		return err
	}
	testserver.EndWithParent(cmd)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) {
		_ = cmd.Wait()
		close(ended)
	}(s.ended)
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.ended:
			s.cmd = nil
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("postgres ended at once: %s", text)
		default:
		}
		if s.answers() {
			return nil
		}
	}
	s.kill()
	return errors.New("postgres does not answer")
}

// answers tells whether the server serves, and is ours: another process may have
// been given the same port.
func (s *Server) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return false
	}
	defer conn.Close(ctx)
	var dir string
	err = conn.QueryRow(ctx, "SHOW data_directory").Scan(&dir)
	return err == nil && dir == filepath.Join(s.Dir, "data")
}

// Kill ends the server like a crash, as far as its clients and its data can tell.
func (s *Server) Kill() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
}

// kill ends all processes at once. SIGKILL for the first alone would leave the
// others to notice.
func (s *Server) kill() {
	if s.cmd == nil {
		return
	}
	all := s.processes()
	s.release()
	for _, pid := range all {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.ended
	s.cmd = nil
	for _, pid := range all {
		for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	}
}

// Restart kills the server if it runs and starts it again at the same port, with
// what it had committed.
func (s *Server) Restart() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err = s.run(); err == nil {
			return
		}
		// The port can be taken for a moment by an outgoing connection.
		time.Sleep(100 * time.Millisecond)
	}
	s.t.Fatalf("pgtest: restart: %v", err)
}

// Exec runs statements on a connection of its own and returns the first column
// of the last one's rows.
func (s *Server) Exec(sql string) []string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		s.t.Fatalf("pgtest: %v", err)
	}
	defer conn.Close(ctx)
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		s.t.Fatalf("pgtest: %s: %v", sql, err)
	}
	var column []string
	for _, row := range results[len(results)-1].Rows {
		column = append(column, string(row[0]))
	}
	return column
}

// Log is what the server has written.
func (s *Server) Log() string {
	text, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	return string(text)
}

// Pool returns a pool that is closed after the test. edit may change its
// configuration.
func Pool(t testing.TB, url string, edit ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	for _, e := range edit {
		e(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Eventually fails the test unless ok becomes true within limit.
func Eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
