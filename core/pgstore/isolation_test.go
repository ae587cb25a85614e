package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// fails makes the database refuse the n-th write of a row of locks with an SQLSTATE.
func fails(server *testserver.Postgres, n int, code string) {
	server.Exec(fmt.Sprintf(`CREATE SEQUENCE public.writes;
		CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('public.writes') = %d THEN RAISE EXCEPTION 'refused' USING ERRCODE = '%s'; END IF;
			RETURN NEW;
		END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON lockkit.locks FOR EACH ROW EXECUTE FUNCTION public.refuse();
		GRANT USAGE ON SEQUENCE public.writes TO public`, n, code))
}

// TestIsolation_FailureAtReadCommitted checks that later statements do not set their
// level if the isolation level was not the cause of a serialization failure.
func TestIsolation_FailureAtReadCommitted(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server := database(t)
			proxy := testserver.NewPostgresProxy(t, server.Addr)
			s := newStore(t, testclient.Postgres(t, server.URLAt(proxy.Addr, "pool_max_conns=1", "default_query_exec_mode="+mode)))
			fails(server, 1, "40001")
			for range 3 {
				c := claimed()
				acquire(t, s, c)
				release(t, s, c)
			}
			if got := proxy.Statements("BEGIN"); len(got) > 0 {
				t.Errorf("got %q, want no transaction of several statements", got)
			}
			if n := len(proxy.Statements("transaction_isolation")); n != 1 {
				t.Errorf("the level was asked for %d times, want once", n)
			}
		})
	}
}

// TestIsolation_FailureInSnapshot checks a statement that fails while transactions have
// one snapshot by default. It must leave no open transaction, in which the next
// statement would fail.
func TestIsolation_FailureInSnapshot(t *testing.T) {
	t.Parallel()
	server := database(t, "default_transaction_isolation = 'serializable'")
	proxy := testserver.NewPostgresProxy(t, server.Addr)
	pool := testclient.Postgres(t, server.URLAt(proxy.Addr, "pool_max_conns=1"))
	s := newStore(t, pool)
	first, second := claimed(), claimed()
	// The TTLs differ, so that each claim takes its own statement.
	first.TTL, second.TTL = 20*time.Second, time.Minute
	fails(server, 1, "40001")
	acquire(t, s, first)
	acquire(t, s, second)
	if len(proxy.Statements("BEGIN ISOLATION")) == 0 {
		t.Fatal("no statement has set its level")
	}
	server.Exec("DROP TRIGGER refuse ON lockkit.locks; DROP FUNCTION public.refuse; DROP SEQUENCE public.writes")
	fails(server, 1, "55P03")
	proxy.Forget()
	before := pool.Stat().NewConnsCount()
	x := s.Extend(t.Context(), []store.Claim{first, second})
	wantIs(t, "the first", x[0].Err, store.ErrUnavailable)
	if !strings.Contains(x[0].Err.Error(), "refused") {
		t.Errorf("the first: got %v, want the server's reason", x[0].Err)
	}
	if x[1].Err != nil {
		t.Errorf("the second: got %v, want nil", x[1].Err)
	}
	acquire(t, s, claimed())
	if n := pool.Stat().NewConnsCount() - before; n != 0 {
		t.Errorf("%d connections were made, want none", n)
	}
}

// TestIsolation_Pooler checks that the level is read after each serialization failure
// behind a pooler. There the next transaction may be in another session.
func TestIsolation_Pooler(t *testing.T) {
	t.Parallel()
	testserver.RequirePgbouncer(t)
	server := database(t)
	pooler := testserver.StartPgbouncer(t, server, "default_pool_size = 1")
	s := newStore(t, testclient.Postgres(t, pooler.URL("pool_max_conns=1")))
	fails(server, 1, "40001")
	cycle := func() {
		t.Helper()
		c := claimed()
		acquire(t, s, c)
		release(t, s, c)
	}
	cycle()
	conn, err := pgx.Connect(t.Context(), pooler.URL("default_query_exec_mode=exec"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	// The setting stays in the server's session, which other clients get too.
	if _, err := conn.Exec(t.Context(), "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE"); err != nil {
		t.Fatal(err)
	}
	server.Exec("ALTER SEQUENCE public.writes RESTART")
	cycle()
	cycle()
	// From now on a statement sets the level of its own transaction.
	if _, err := conn.Exec(t.Context(), `CREATE FUNCTION public.level() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE EXCEPTION 'snapshot'; END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER level BEFORE INSERT OR UPDATE ON lockkit.locks FOR EACH ROW EXECUTE FUNCTION public.level()`); err != nil {
		t.Fatal(err)
	}
	cycle()
}
