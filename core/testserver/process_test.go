package testserver_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestProcess(t *testing.T) {
	t.Parallel()
	t.Run("output and exit", func(t *testing.T) {
		t.Parallel()
		p := testserver.StartProcess(t, exec.Command("sh", "-c", "echo out; echo err >&2"))
		p.Wait(patience)
		if got := p.Output(); got != "out\nerr\n" {
			t.Errorf("it wrote %q", got)
		}
		if p.Running() {
			t.Error("it runs after its end")
		}
	})
	// The process writes nothing while it is paused, and is killed at the end of its
	// test.
	t.Run("paused process", func(t *testing.T) {
		var p *testserver.Process
		t.Run("in a test", func(t *testing.T) {
			p = testserver.StartProcess(t, exec.Command("sh", "-c", "while :; do echo x; sleep 0.01; done"))
			eventually(t, "it writes", func() bool { return p.Output() != "" })
			p.Pause()
			if p.Running() {
				t.Error("got a process that runs while it is paused")
			}
			before := p.Output()
			time.Sleep(100 * time.Millisecond)
			if p.Output() != before {
				t.Error("got output while it is paused")
			}
			p.Resume()
			eventually(t, "it writes again", func() bool { return len(p.Output()) > len(before) })
		})
		if p.Running() {
			t.Error("it outlives its test")
		}
	})
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	server := testserver.StartPostgres(t, "max_connections = 20")
	if got := server.Exec("SELECT 1; SHOW max_connections"); len(got) != 1 || got[0] != "20" {
		t.Errorf("max_connections is %v, want 20", got)
	}
	server.Exec("CREATE TABLE kept AS SELECT 'a' AS name UNION SELECT 'b'")
	server.Restart()
	if got := strings.Join(server.Exec("SELECT name FROM kept ORDER BY name"), ","); got != "a,b" {
		t.Errorf("after a restart there is %q", got)
	}
	bouncer := testserver.StartPgbouncer(t, server)
	proxy := testserver.NewPostgresProxy(t, bouncer.Addr)
	pool := testclient.Postgres(t, server.URLAt(proxy.Addr, "default_query_exec_mode=simple_protocol"))
	var n int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&n); err != nil || n != 2 {
		t.Errorf("through a proxy and a pgbouncer: %d rows, %v", n, err)
	}
	if got := proxy.Statements("count(*)", "kept"); len(got) != 1 {
		t.Errorf("the proxy saw %q", got)
	}
	server.Pause()
	done := make(chan error, 1)
	go func() { done <- pool.QueryRow(t.Context(), "SELECT count(*) FROM kept").Scan(&n) }()
	select {
	case err := <-done:
		t.Errorf("a paused server answered: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	server.Resume()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
