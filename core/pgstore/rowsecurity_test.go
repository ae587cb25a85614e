package pgstore_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

const secureAll = `DO $$ DECLARE t text; BEGIN
	FOR t IN SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'lockkit' AND relkind = 'r' LOOP
		EXECUTE format('ALTER TABLE lockkit.%I ENABLE ROW LEVEL SECURITY', t);
		EXECUTE format('ALTER TABLE lockkit.%I FORCE ROW LEVEL SECURITY', t);
	END LOOP; END $$`

// newUser creates a user with these attributes and with rights to the whole schema.
func newUser(t testing.TB, server *testserver.Postgres, attributes string) (name string, pool *pgxpool.Pool) {
	t.Helper()
	name = "u" + strings.ToLower(rand.Text())
	server.Exec("CREATE ROLE " + name + " LOGIN " + attributes + "; GRANT USAGE ON SCHEMA lockkit TO " + name +
		"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lockkit TO " + name)
	return name, testclient.Postgres(t, strings.Replace(server.URL(), "postgres@", name+"@", 1))
}

func TestRowSecurity(t *testing.T) {
	t.Parallel()
	server := migrated(t, durable.Get(t).NewDatabase(t))
	name, pool := newUser(t, server, "")
	s := newStore(t, pool)
	acquire(t, s, claimed())
	server.Exec(secureAll)
	owner, ofOwner := newUser(t, server, "")
	server.Exec("ALTER SCHEMA lockkit OWNER TO " + owner)
	for _, table := range server.Exec("SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'lockkit' AND relkind = 'r'") {
		server.Exec("ALTER TABLE lockkit." + table + " OWNER TO " + owner)
	}

	named := func(what string, err error, table string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "row-level security") || !strings.Contains(err.Error(), table) {
			t.Errorf("%s: got %v, want row-level security and %s", what, err, table)
			return
		}
		for _, wrong := range []string{"GRANT", "pgstore.Migrate"} {
			if strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: got %v, want no word about %s", what, err, wrong)
			}
		}
	}
	_, err := s.Acquire(t.Context(), claimed())
	wantIs(t, "acquire", err, store.ErrUnavailable)
	named("acquire", err, "lockkit.locks")
	err = s.Check(t.Context())
	named("check", err, "ALTER TABLE lockkit.locks DISABLE ROW LEVEL SECURITY")
	named("check", err, "ALTER ROLE "+name+" BYPASSRLS")
	if errors.Is(err, store.ErrUnavailable) {
		t.Errorf("check: got %v, want an error that is not ErrUnavailable", err)
	}
	for what, pool := range map[string]*pgxpool.Pool{"migrate": pool, "migrate as the owner": ofOwner} {
		err := pgstore.Migrate(t.Context(), pool)
		wantIs(t, what, err, store.ErrUnavailable)
		named(what, err, "lockkit.version")
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pgstore.CheckToken(t.Context(), tx, "a", 1) })
	named("check token", err, `"seen"`)
	_, err = s.Look(t.Context(), "order:42")
	named("look", err, "lockkit.locks")
	_, _, err = s.List(t.Context(), "", 10)
	named("list", err, "lockkit.locks")
	_, err = s.Cards(t.Context())
	named("cards", err, "lockkit.locks")
	named("put a card", s.Put(t.Context(), store.Card{Process: "PROCESS1"}, patience), "lockkit.locks")

	server.Exec("GRANT CREATE ON DATABASE " + server.Exec("SELECT current_database()")[0] + " TO " + owner)
	server.Exec("CREATE POLICY none ON lockkit.seen USING (false); CREATE POLICY none ON lockkit.version USING (false)")
	err = pgstore.Migrate(t.Context(), ofOwner)
	wantIs(t, "migrate with policies that allow nothing", err, store.ErrUnavailable)
	named("migrate with policies that allow nothing", err, "BYPASSRLS")
	server.Exec("DROP POLICY none ON lockkit.seen; DROP POLICY none ON lockkit.version")

	_, bypassing := newUser(t, server, "BYPASSRLS")
	if err := newStore(t, bypassing).Check(t.Context()); err != nil {
		t.Errorf("check of a user that bypasses it: got %v, want nil", err)
	}
	for _, table := range []string{"locks", "version"} {
		server.Exec("CREATE POLICY own ON lockkit." + table + " TO " + name + " USING (true)")
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("check with a policy that allows all: got %v, want nil", err)
	}
	acquire(t, s, claimed())
	if _, err := s.Look(t.Context(), "order:42"); err != nil {
		t.Errorf("look with a policy that allows all: got %v, want nil", err)
	}
}
