package testserver_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestMariaDB(t *testing.T) {
	t.Parallel()
	server := testserver.StartMariaDB(t, "max_connections = 20", "max_allowed_packet = 64M")
	if got := server.Exec("SELECT 1; SELECT @@max_connections"); len(got) != 1 || got[0] != "20" {
		t.Errorf("max_connections: got %v, want 20", got)
	}
	if got := strings.Join(server.Exec("SELECT @@innodb_flush_log_at_trx_commit"), ""); got != "1" {
		t.Errorf("innodb_flush_log_at_trx_commit: got %q, want 1: commits must be durable", got)
	}
	own, other := server.NewDatabase(t), server.NewDatabase(t)
	own.Exec("CREATE TABLE kept (name VARCHAR(9)); INSERT INTO kept VALUES ('b'), (NULL), ('a')")
	if got := other.Exec("SHOW TABLES"); len(got) != 0 {
		t.Errorf("tables of another database: got %v, want none", got)
	}
	for range 2 {
		server.Restart() // by a crash
		if got := strings.Join(own.Exec("SELECT name FROM kept ORDER BY name"), ","); got != ",a,b" {
			t.Errorf("rows after a restart: got %q, want %q", got, ",a,b")
		}
	}
	if got := own.DSN("autocommit=0"); !strings.HasPrefix(got, "root@tcp("+server.Addr+")/test_") || !strings.HasSuffix(got, "?autocommit=0") {
		t.Errorf("got DSN %q", got)
	}
	server.Pause()
	done := make(chan error, 1)
	go func() {
		_, err := testserver.AskMySQL(server.Addr, "SELECT 1")
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("answer of a paused server: got %v, want none", err)
	case <-time.After(200 * time.Millisecond):
	}
	server.Resume()
	if err := <-done; err != nil {
		t.Error(err)
	}
	server.Kill()
	if _, err := testserver.AskMySQL(server.Addr, "SELECT 1"); err == nil {
		t.Error("answer of a killed server: got one, want none")
	}
}

func TestMySQLProxy(t *testing.T) {
	t.Parallel()
	server := testserver.StartMariaDB(t, "max_allowed_packet = 64M")
	db := server.NewDatabase(t)
	table := strings.Join(db.Exec("CREATE TABLE counted (n INT); SELECT concat(database(), '.counted')"), "")
	rows := func(t *testing.T) int {
		t.Helper()
		return len(db.Exec("SELECT n FROM counted"))
	}
	insert := "INSERT INTO " + table + " VALUES (1)"

	t.Run("everything passes", func(t *testing.T) {
		p := testserver.NewMySQLProxy(t, server.Addr)
		got, err := testserver.AskMySQL(p.Addr, "SELECT 1; SELECT 2 UNION SELECT 3; DO 0; SELECT 'x' AS y")
		if err != nil || strings.Join(got, ",") != "x" {
			t.Errorf("got %q, %v, want x", got, err)
		}
		if got := p.Statements("UNION", "DO 0"); len(got) != 1 {
			t.Errorf("statements: got %q, want one", got)
		}
		p.Forget()
		// The reply has more than one packet.
		got, err = testserver.AskMySQL(p.Addr, "SELECT REPEAT('x', 20000000)")
		if err != nil || len(got) != 1 || len(got[0]) != 20000000 {
			t.Errorf("a long row: got %d rows, %v, want one", len(got), err)
		}
		if _, err = testserver.AskMySQL(p.Addr, "SELECT 1; SELECT nothing; SELECT 2"); err == nil || !strings.HasPrefix(err.Error(), "1054: ") {
			t.Errorf("got error %v, want 1054", err)
		}
		if n := p.Count(testserver.Match{Command: "query"}); n != 2 {
			t.Errorf("got %d requests, want 2", n)
		}
	})
	for _, c := range []struct {
		name    string
		action  testserver.Action
		added   int
		answers bool
	}{
		{"a request is lost", testserver.CloseRequest, 0, false},
		{"a reply is lost", testserver.CloseReply, 1, false},
		{"a request is doubled", testserver.DoubleRequest, 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testserver.NewMySQLProxy(t, server.Addr)
			before := rows(t)
			f := p.Inject(testserver.Statement("INSERT", "counted"), c.action)
			_, err := testserver.AskMySQL(p.Addr, insert)
			if (err == nil) != c.answers {
				t.Errorf("got error %v, want an answer: %v", err, c.answers)
			}
			if c.added > 0 {
				f.AwaitAnswer(t)
			}
			if got := rows(t) - before; got != c.added {
				t.Errorf("got %d rows more, want %d", got, c.added)
			}
		})
	}
	t.Run("a reply is held", func(t *testing.T) {
		p := testserver.NewMySQLProxy(t, server.Addr)
		before := rows(t)
		f := p.Inject(testserver.Statement("INSERT"), testserver.HoldReply)
		done := make(chan error, 1)
		go func() {
			_, err := testserver.AskMySQL(p.Addr, insert)
			done <- err
		}()
		f.AwaitAnswer(t)
		if got := rows(t) - before; got != 1 {
			t.Errorf("got %d rows more, want 1", got)
		}
		select {
		case err := <-done:
			t.Errorf("before it is delivered: got an answer, %v", err)
		default:
		}
		f.Deliver()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestMySQLProxyEnds checks that a proxy stops with its test, even during a partition or
// while a statement is held. Otherwise a test that failed midway could not report its
// failure.
func TestMySQLProxyEnds(t *testing.T) {
	t.Parallel()
	server := testserver.StartMariaDB(t)
	for name, trouble := range map[string]func(t *testing.T, p *testserver.Proxy, send func()){
		"while the line is stalled": func(_ *testing.T, p *testserver.Proxy, send func()) {
			p.Partition()
			send()
		},
		"while a statement is held": func(t *testing.T, p *testserver.Proxy, send func()) {
			f := p.Inject(testserver.Statement("SELECT 1"), testserver.HoldRequest)
			send()
			f.Await(t)
		},
	} {
		var sent sync.WaitGroup
		t.Run(name, func(t *testing.T) {
			p := testserver.NewMySQLProxy(t, server.Addr)
			trouble(t, p, func() {
				sent.Go(func() { _, _ = testserver.AskMySQL(p.Addr, "SELECT 1") })
			})
		})
		sent.Wait()
	}
}
