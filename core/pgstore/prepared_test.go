package pgstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestPrepared checks that the statements that take and release the usual lock are
// prepared only if the connection allows this.
func TestPrepared(t *testing.T) {
	t.Parallel()
	server := database(t)
	cycles := func(t *testing.T, pool *pgxpool.Pool) {
		t.Helper()
		s := newStore(t, pool)
		for range 3 {
			c := claimed()
			acquire(t, s, c)
			held(t, s, c, true)
			release(t, s, c)
			held(t, s, c, false)
		}
	}
	prepared := func(t *testing.T, pool *pgxpool.Pool) (n int) {
		t.Helper()
		const count = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'lockkit_%'"
		if err := pool.QueryRow(t.Context(), count, pgx.QueryExecModeExec).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Run("as pgx does", func(t *testing.T) {
		t.Parallel()
		pool := testclient.Postgres(t, server.URL("pool_max_conns=1"))
		cycles(t, pool)
		if n := prepared(t, pool); n != 2 {
			t.Errorf("%d statements are prepared, want 2", n)
		}
	})
	t.Run("not where pgx does not", func(t *testing.T) {
		t.Parallel()
		for _, mode := range []string{"exec", "simple_protocol", "describe_exec", "cache_describe"} {
			pool := testclient.Postgres(t, server.URL("pool_max_conns=1", "default_query_exec_mode="+mode))
			cycles(t, pool)
			if n := prepared(t, pool); n != 0 {
				t.Errorf("%s: %d statements are prepared, want none", mode, n)
			}
		}
	})
	t.Run("not behind a pooler", func(t *testing.T) {
		t.Parallel()
		testserver.RequirePgbouncer(t)
		pooler := testserver.StartPgbouncer(t, server, "default_pool_size = 1")
		pool := testclient.Postgres(t, pooler.URL("pool_max_conns=4"))
		for range 3 {
			cycles(t, pool)
		}
		if n := prepared(t, pool); n != 0 {
			t.Errorf("%d statements are prepared, want none", n)
		}
	})
	// A hook of the pool removes the prepared statements from the session.
	t.Run("removed by a hook", func(t *testing.T) {
		t.Parallel()
		pool := testclient.Postgres(t, server.URL("pool_max_conns=1"), func(c *pgxpool.Config) {
			c.AfterRelease = func(conn *pgx.Conn) bool {
				_, err := conn.PgConn().Exec(context.Background(), "DISCARD ALL").ReadAll()
				return err == nil
			}
		})
		before := pool.Stat().NewConnsCount()
		cycles(t, pool)
		if n := pool.Stat().NewConnsCount() - before; n != 1 {
			t.Errorf("%d connections were made, want 1", n)
		}
	})
	// A failed Describe leaves a prepared statement behind.
	t.Run("failed Describe", func(t *testing.T) {
		t.Parallel()
		pool := testclient.Postgres(t, server.URLAt(withoutDescribe(t, server.Addr), "pool_max_conns=1"))
		s := newStore(t, pool)
		before := pool.Stat().NewConnsCount()
		_, err := s.Acquire(t.Context(), claimed())
		wantIs(t, "acquire", err, store.ErrUnavailable)
		cycles(t, pool)
		if n := prepared(t, pool); n != 2 {
			t.Errorf("%d statements are prepared, want 2", n)
		}
		if n := pool.Stat().NewConnsCount() - before; n != 1 {
			t.Errorf("%d connections were made, want 1", n)
		}
	})
	t.Run("not with long words", func(t *testing.T) {
		t.Parallel()
		pool := testclient.Postgres(t, server.URL("pool_max_conns=1"))
		s := newStore(t, pool)
		c := exclusive(strings.Repeat("k", 400))
		c.Owner, c.Lease = strings.Repeat("o", 250), strings.Repeat("l", 250)
		acquire(t, s, c)
		release(t, s, c)
		if n := prepared(t, pool); n != 0 {
			t.Errorf("%d statements are prepared, want none", n)
		}
	})
	t.Run("lost reply", func(t *testing.T) {
		t.Parallel()
		proxy := testserver.NewPostgresProxy(t, server.Addr)
		s := newStore(t, testclient.Postgres(t, server.URLAt(proxy.Addr, "pool_max_conns=1")))
		c := claimed()
		acquire(t, s, c)
		release(t, s, c)
		f := proxy.Inject(testserver.Match{Command: "sync"}, testserver.CloseReply)
		unknown(t, "acquire", second(s.Acquire(t.Context(), c)))
		f.Await(t)
		held(t, newStore(t, testclient.Postgres(t, server.URL())), c, true)
		g := acquire(t, s, c)
		if again := acquire(t, s, c); again.Token != g.Token {
			t.Errorf("got tokens %d and %d for one claim", g.Token, again.Token)
		}
	})
}

// withoutDescribe returns the address of a proxy that makes the first Describe after a
// Parse fail.
func withoutDescribe(t *testing.T, addr string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var links []net.Conn
	var mu sync.Mutex
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, link := range links {
			_ = link.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	var failed atomic.Bool
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				return
			}
			mu.Lock()
			links = append(links, client, server)
			mu.Unlock()
			all.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
			all.Go(func() { failDescribe(server, client, &failed); _ = client.Close() })
		}
	})
	return listener.Addr().String()
}

// failDescribe forwards the messages of a server until the server closes the connection.
// After the first successful Parse it sends the client an error instead of the
// description.
func failDescribe(from io.Reader, to io.Writer, failed *atomic.Bool) {
	const parseComplete, ready = '1', 'Z'
	skips := false
	for {
		message := make([]byte, 5)
		if _, err := io.ReadFull(from, message); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(message[1:])-4)
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		skips = skips && message[0] != ready
		if skips {
			continue
		}
		message = append(message, body...)
		if message[0] == parseComplete && failed.CompareAndSwap(false, true) {
			skips = true
			fault := pgproto3.ErrorResponse{Severity: "ERROR", Code: "57014", Message: "canceling statement due to statement timeout"}
			message, _ = fault.Encode(message)
		}
		if _, err := to.Write(message); err != nil {
			return
		}
	}
}

// TestTake_CommitFails checks that a grant counts only after its COMMIT, which can fail
// after the row was returned.
func TestTake_CommitFails(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server := database(t)
			s := newStore(t, testclient.Postgres(t, server.URL("default_query_exec_mode="+mode)))
			c := claimed()
			acquire(t, s, c)
			release(t, s, c)
			server.Exec(`CREATE FUNCTION public.late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'late'; END $$;
				CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE ON lockkit.locks DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.late()`)
			if g, err := s.Acquire(t.Context(), c); !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("got %+v and %v, want %v", g, err, store.ErrUnavailable)
			}
			server.Exec("DROP TRIGGER late ON lockkit.locks")
			held(t, s, c, false)
		})
	}
}
