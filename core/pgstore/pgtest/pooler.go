package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockkit/lockkit/core/testserver"
)

// Pooler is a pgbouncer that gives a connection of the server to another client
// after each transaction. It ends with the test.
type Pooler struct {
	Port int
}

// StartPooler runs a pgbouncer before server. Settings are those of its
// configuration: "pool_mode = session".
func StartPooler(t testing.TB, server *Server, settings ...string) *Pooler {
	t.Helper()
	RequirePooler(t)
	dir := tempDir(t)
	for try := 1; ; try++ {
		port, err := freePort()
		if err == nil {
			if err = startPooler(t, dir, server.Port, port, settings); err == nil {
				return &Pooler{Port: port}
			}
		}
		if try == 3 {
			t.Fatalf("pgtest: %v", err)
		}
	}
}

// URL is how to connect through the pooler.
func (p *Pooler) URL(parameters ...string) string { return address(p.Port, parameters) }

func startPooler(t testing.TB, dir string, server, port int, settings []string) error {
	t.Helper()
	config := append([]string{
		"[databases]", fmt.Sprintf("postgres = host=127.0.0.1 port=%d user=postgres", server), "[pgbouncer]",
		"listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", port), "unix_socket_dir =",
		"auth_type = any", "pool_mode = transaction", "max_client_conn = 500", "default_pool_size = 20",
		"logfile = " + filepath.Join(dir, "pgbouncer.log"),
	}, settings...)
	file := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(file, []byte(strings.Join(config, "\n")+"\n"), 0o644); err != nil {
		return err
	}
	cmd := exec.Command(program("pgbouncer"), "-q", file)
	if err := as(cmd); err != nil {
		return err
	}
	testserver.EndWithParent(cmd)
	cmd.Dir = dir
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	kill := func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		select {
		case <-ended:
			text, _ := os.ReadFile(filepath.Join(dir, "pgbouncer.log"))
			return fmt.Errorf("pgbouncer ended at once: %s", text)
		default:
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		conn, err := pgx.Connect(ctx, address(port, nil))
		if err == nil {
			_ = conn.Close(ctx)
		}
		cancel()
		if err == nil {
			t.Cleanup(kill)
			return nil
		}
	}
	kill()
	return fmt.Errorf("pgbouncer does not answer")
}
