package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
)

// posing is a connector to a server that reports another version.
type posing struct {
	of            driver.Driver
	dsn           string
	query, answer string
}

func (p posing) Connect(context.Context) (driver.Conn, error) {
	c, err := p.of.Open(p.dsn)
	if err != nil {
		return nil, err
	}
	return &posingConn{traced{c.(connection)}, p}, nil
}

func (p posing) Driver() driver.Driver { return p.of }

type posingConn struct {
	traced
	as posing
}

func (c *posingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if query == c.as.query {
		query = "SELECT '" + c.as.answer + "'"
	}
	return c.traced.QueryContext(ctx, query, args)
}

// TestOldServer checks that Check and Migrate refuse a server that is too old.
func TestOldServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ version, want string }{
		{"12.22", "PostgreSQL 12.22 (at least 14)"},
		{"13.23 (Debian 13.23-0+deb11u1)", "PostgreSQL 13.23 (Debian 13.23-0+deb11u1) (at least 14)"},
		{"14.0", ""},
		{"19beta1", ""},
		{"unknown", ""},
		{"5.7.44-log", "MySQL 5.7.44-log (at least 8.0)"},
		{"8.0.11-TiDB-v7.5.0", ""},
		{"10.5.29-MariaDB-log", "MariaDB 10.5.29-MariaDB-log (at least 10.6)"},
		{"5.5.5-10.3.39-MariaDB", "MariaDB 10.3.39-MariaDB (at least 10.6)"},
		{"10.6.0-MariaDB", ""},
		{"11.4.2-MariaDB", ""},
	} {
		t.Run(strings.Fields(c.version)[0], func(t *testing.T) {
			t.Parallel()
			d := database{sqlstore.PostgreSQL, "pgx", postgres.Get(t).NewDatabase(t).URL()}
			as := posing{stdlib.GetDefaultDriver(), d.dsn, d.dialect.Server().Text, c.version}
			if strings.Contains(c.version, "MariaDB") || strings.HasPrefix(c.want, "MySQL") || strings.Contains(c.version, "TiDB") {
				d = onMariaDB(t)
				as = posing{mysql.MySQLDriver{}, d.dsn, d.dialect.Server().Text, c.version}
			}
			db := sql.OpenDB(as)
			t.Cleanup(func() { _ = db.Close() })
			err := sqlstore.Migrate(t.Context(), db, d.dialect)
			checked := newStore(t, db, d).Check(t.Context())
			if c.want == "" {
				if err != nil {
					t.Errorf("migrate: got %v, want nil", err)
				}
				if checked != nil && strings.Contains(checked.Error(), "): upgrade it") {
					t.Errorf("check: got %v, want no fault of the version", checked)
				}
				return
			}
			if !errors.Is(err, store.ErrUnsupported) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("migrate: got %v, want %v with %q", err, store.ErrUnsupported, c.want)
			}
			if checked == nil || !strings.Contains(checked.Error(), c.want) {
				t.Errorf("check: got %v, want %q", checked, c.want)
			}
			if v, err := d.open(t).ExecContext(t.Context(), d.dialect.Version().Text); err == nil {
				t.Errorf("got tables, %v, want none", v)
			}
		})
	}
}

// TestMigrate_Rights checks that Migrate names the GRANT that a user lacks.
func TestMigrate_Rights(t *testing.T) {
	t.Parallel()
	user := "app" + strings.ToLower(rand.Text())[:10]
	maria, pg := mariaDB.Get(t).NewDatabase(t), postgres.Get(t).NewDatabase(t)
	maria.Exec("CREATE USER " + user + "; GRANT SELECT, INSERT, UPDATE, DELETE ON " + maria.Exec("SELECT DATABASE()")[0] + ".* TO " + user)
	pg.Exec("CREATE ROLE " + user + " LOGIN")
	for want, d := range map[string]database{
		"GRANT CREATE, SELECT, INSERT, UPDATE ON": {sqlstore.MySQL, "mysql", strings.Replace(maria.DSN(), "root@", user+"@", 1)},
		"GRANT CREATE ON DATABASE":                {sqlstore.PostgreSQL, "pgx", strings.Replace(pg.URL(), "postgres@", user+"@", 1)},
	} {
		err := sqlstore.Migrate(t.Context(), d.open(t), d.dialect)
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %v with %q", err, store.ErrUnavailable, want)
		}
	}
}

// TestPostgreSQL_RowSecurity checks that errors name row-level security and the table,
// and that Check names the remedy.
func TestPostgreSQL_RowSecurity(t *testing.T) {
	t.Parallel()
	server := durable.Get(t).NewDatabase(t)
	d := database{sqlstore.PostgreSQL, "pgx", server.URL()}
	d.place(t)
	user := "app" + strings.ToLower(rand.Text())[:10]
	server.Exec("CREATE ROLE " + user + " LOGIN; GRANT USAGE ON SCHEMA lockkit TO " + user +
		"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lockkit TO " + user)
	d.dsn = strings.Replace(d.dsn, "postgres@", user+"@", 1)
	db := d.open(t)
	s := newStore(t, db, d)
	acquire(t, s, claim("key", long))
	named := func(what string, err error, names ...string) {
		t.Helper()
		for _, want := range append(names, "row-level security") {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", what, err, want)
			}
		}
		for _, wrong := range []string{"GRANT", "call Migrate"} {
			if err != nil && strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: got %v, want no word about %s", what, err, wrong)
			}
		}
	}
	for _, table := range []string{"locks", "version"} {
		server.Exec("ALTER TABLE lockkit." + table + " ENABLE ROW LEVEL SECURITY")
		for what, c := range map[string]store.Claim{"acquire": claim(rand.Text(), long), "acquire, shared": shared(rand.Text())} {
			_, err := s.Acquire(t.Context(), c)
			named(what, err, table)
			if table == "locks" && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: got %v, want %v", what, err, store.ErrUnavailable)
			}
		}
		err := s.Check(t.Context())
		named("check", err, "ALTER TABLE lockkit."+table+" DISABLE ROW LEVEL SECURITY", "ALTER ROLE "+user+" BYPASSRLS")
		if errors.Is(err, store.ErrUnavailable) {
			t.Errorf("check: got %v, want an error that is not %v", err, store.ErrUnavailable)
		}
	}
	err := sqlstore.Migrate(t.Context(), db, d.dialect)
	named("migrate", err, "lockkit.version")
	if !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("migrate: got %v, want %v", err, store.ErrUnavailable)
	}
	for _, table := range []string{"locks", "version"} {
		server.Exec("CREATE POLICY own ON lockkit." + table + " TO " + user + " USING (true)")
	}
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("check with a policy that allows all: got %v, want nil", err)
	}
}
