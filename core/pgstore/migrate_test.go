package pgstore_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// exclusive returns an exclusive claim of a new owner.
func exclusive(key string) store.Claim {
	return store.Claim{
		Key: key, Owner: rand.Text(), Lease: rand.Text(),
		Weight: store.All, Limit: store.All, TTL: time.Minute,
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	server := durable.Get(t)
	database := func(t *testing.T) string {
		return server.NewDatabase(t, "default_transaction_isolation = 'serializable'").URL()
	}
	locks := func(t *testing.T, url string) {
		t.Helper()
		s := newStore(t, testclient.Postgres(t, url))
		c := exclusive("order:42")
		if _, err := s.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if err := s.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("no schema", func(t *testing.T) {
		t.Parallel()
		s := newStore(t, testclient.Postgres(t, database(t)))
		_, errAcquire := s.Acquire(t.Context(), exclusive("order:42"))
		for what, err := range map[string]error{
			"acquire": errAcquire,
			"extend":  s.Extend(t.Context(), []store.Claim{exclusive("order:42")})[0].Err,
			"release": s.Release(t.Context(), exclusive("order:42")),
		} {
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "pgstore.Migrate") {
				t.Errorf("%s: got %v, want ErrUnavailable and a word about pgstore.Migrate", what, err)
			}
		}
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "pgstore.Migrate") {
			t.Errorf("check: got %v, want a word about pgstore.Migrate", err)
		}
	})

	// Holds stay after a second Migrate.
	t.Run("second Migrate", func(t *testing.T) {
		t.Parallel()
		url := database(t)
		pool := testclient.Postgres(t, url)
		if err := pgstore.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		s, c := newStore(t, pool), exclusive("held")
		if _, err := s.Acquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if err := pgstore.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		if x := s.Extend(t.Context(), []store.Claim{c}); x[0].Err != nil {
			t.Error(x[0].Err)
		}
		locks(t, url)
	})

	t.Run("several at once", func(t *testing.T) {
		t.Parallel()
		url := database(t)
		var all sync.WaitGroup
		for range 8 {
			pool := testclient.Postgres(t, url)
			all.Go(func() {
				if err := pgstore.Migrate(t.Context(), pool); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		locks(t, url)
	})

	// A later schema stays, and Migrate, Check and Acquire refuse it.
	t.Run("later schema", func(t *testing.T) {
		t.Parallel()
		pool := testclient.Postgres(t, database(t))
		if err := pgstore.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		exec(t, pool, `UPDATE lockkit.version SET version = 99`)
		s := newStore(t, pool)
		const update = "update this program"
		if err := pgstore.Migrate(t.Context(), pool); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), update) {
			t.Errorf("migrate: got %v, want %v", err, store.ErrUnsupported)
		}
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), update) {
			t.Errorf("check: got %v, want a word about this program", err)
		}
		if _, err := s.Acquire(t.Context(), exclusive("order:42")); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), update) {
			t.Errorf("acquire: got %v, want %v", err, store.ErrUnavailable)
		}
		exec(t, pool, `SELECT 1 / (SELECT count(*) FROM lockkit.version WHERE version = 99)`)
	})

	// The error for a user who may not create the schema names the missing right.
	t.Run("no right to create", func(t *testing.T) {
		t.Parallel()
		url := database(t)
		owner := testclient.Postgres(t, url)
		name := "u" + strings.ToLower(rand.Text())
		exec(t, owner, "CREATE ROLE "+name+" LOGIN")
		pool := testclient.Postgres(t, strings.Replace(url, "postgres@", name+"@", 1))
		err := pgstore.Migrate(t.Context(), pool)
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "GRANT CREATE ON DATABASE") {
			t.Errorf("migrate: got %v, want %v with GRANT CREATE ON DATABASE", err, store.ErrUnavailable)
		}
	})
	// The error for a user without rights names the missing rights, and a user with the
	// rights can lock.
	t.Run("missing rights", func(t *testing.T) {
		t.Parallel()
		url := database(t)
		owner := testclient.Postgres(t, url)
		if err := pgstore.Migrate(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
		name := "u" + strings.ToLower(rand.Text())
		exec(t, owner, "CREATE ROLE "+name+" LOGIN")
		own := strings.Replace(url, "postgres@", name+"@", 1)
		pool := testclient.Postgres(t, own)
		const tables = "GRANT SELECT, INSERT, UPDATE, DELETE ON lockkit.locks TO "
		if err := newStore(t, pool).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "GRANT USAGE ON SCHEMA lockkit TO "+name+"; "+tables+name) {
			t.Errorf("check: got %v, want what the user needs", err)
		}
		exec(t, owner, "GRANT USAGE ON SCHEMA lockkit TO "+name)
		if err := newStore(t, pool).Check(t.Context()); err == nil || strings.Contains(err.Error(), "USAGE") || !strings.Contains(err.Error(), tables+name) {
			t.Errorf("check: got %v, want what the user needs", err)
		}
		if _, err := newStore(t, pool).Acquire(t.Context(), exclusive("order:42")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("acquire: got %v, want %v", err, store.ErrUnavailable)
		}
		exec(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lockkit TO "+name)
		if err := pgstore.Migrate(t.Context(), pool); err != nil {
			t.Errorf("migrate, where nothing is to be done: %v", err)
		}
		locks(t, own)
	})
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Conn().PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	unfit := func(t *testing.T, server *testserver.Postgres, want string, opts ...pgstore.Option) {
		t.Helper()
		err := newStore(t, testclient.Postgres(t, server.URL()), opts...).Check(t.Context())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}

	t.Run("fsync is off", func(t *testing.T) {
		t.Parallel()
		unfit(t, database(t), "set fsync = on")
	})
	t.Run("fit server", func(t *testing.T) {
		t.Parallel()
		server := migrated(t, durable.Get(t).NewDatabase(t))
		unfit(t, server, "")
		unfit(t, server, "", pgstore.WithoutWakeUps())
		server.Exec("ALTER TABLE lockkit.locks SET UNLOGGED")
		unfit(t, server, "not logged")
		server.Exec("ALTER TABLE lockkit.locks SET LOGGED; UPDATE lockkit.version SET token = " + micros + " + 300000000")
		unfit(t, server, "clock is more than a minute behind")
		server.Exec("UPDATE lockkit.version SET token = 0")
		server.Exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
		unfit(t, server, "read-only")
	})
	// Check's hold lasts for the whole check, and Check reports a second grant.
	t.Run("second grant", func(t *testing.T) {
		t.Parallel()
		server := migrated(t, durable.Get(t).NewDatabase(t))
		// A trigger makes the server forget a hold when it is extended.
		server.Exec(`CREATE TABLE public.lengths (ttl bigint);
			CREATE FUNCTION public.forgets() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				INSERT INTO public.lengths VALUES (NEW.until - NEW.written);
				DELETE FROM lockkit.locks WHERE name = NEW.name;
				RETURN NULL;
			END $$;
			CREATE TRIGGER forgets AFTER UPDATE ON lockkit.locks FOR EACH ROW EXECUTE FUNCTION public.forgets()`)
		unfit(t, server, "a held key was granted a second time")
		// The hold must last for the 10 s of a Check, however slow its steps are.
		if ttl := server.Exec("SELECT ttl >= 10000000 FROM public.lengths"); !slices.Equal(ttl, []string{"t"}) {
			t.Errorf("the key is held for the whole Check: %v, want t", ttl)
		}
	})
	// A pooler in transaction mode is unfit for a Store with wake-ups, and fit for a
	// Store without them.
	t.Run("transaction pooler", func(t *testing.T) {
		t.Parallel()
		testserver.RequirePgbouncer(t)
		pooler := testserver.StartPgbouncer(t, migrated(t, durable.Get(t).NewDatabase(t)))
		pool := testclient.Postgres(t, pooler.URL())
		check := func(s *pgstore.Store) error {
			return unlocked(func() error { return s.Check(t.Context()) })
		}
		if err := check(newStore(t, pool)); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "WithListener") {
			t.Errorf("got %v, want %v and a word about WithListener", err, store.ErrUnsupported)
		}
		if err := check(newStore(t, pool, pgstore.WithoutWakeUps())); err != nil {
			t.Error(err)
		}
	})
	// A pooler that assigns its connections for a whole session forwards wake-ups.
	t.Run("session pooler", func(t *testing.T) {
		t.Parallel()
		testserver.RequirePgbouncer(t)
		pooler := testserver.StartPgbouncer(t, migrated(t, durable.Get(t).NewDatabase(t)), "pool_mode = session")
		if err := newStore(t, testclient.Postgres(t, pooler.URL("pool_max_conns=4"))).Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("server down", func(t *testing.T) {
		t.Parallel()
		server := database(t)
		proxy := testserver.NewPostgresProxy(t, server.Addr)
		s := newStore(t, testclient.Postgres(t, server.URLAt(proxy.Addr)))
		proxy.Down()
		if err := s.Check(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("got %v, want %v", err, store.ErrUnavailable)
		}
	})
}
