package pgstore_test

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestHostileSchema checks that no function of another user is called. A user with the
// right to create functions in a schema of the search path has created functions that
// match better than the system's functions.
func TestHostileSchema(t *testing.T) {
	server := durable.Get(t).NewDatabase(t)
	server.Exec(`CREATE FUNCTION public.evil() RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil'; END $$;
		CREATE FUNCTION public.less(double precision, numeric) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM public.evil(); END $$;
		CREATE OPERATOR public.< (LEFTARG = double precision, RIGHTARG = numeric, FUNCTION = public.less);
		CREATE FUNCTION public.times(numeric, integer) RETURNS numeric LANGUAGE plpgsql AS $$ BEGIN PERFORM public.evil(); END $$;
		CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.times);
		CREATE FUNCTION public.span(bigint, interval) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN PERFORM public.evil(); END $$;
		CREATE OPERATOR public.* (LEFTARG = bigint, RIGHTARG = interval, FUNCTION = public.span);
		CREATE FUNCTION public.over(numeric, integer) RETURNS numeric LANGUAGE plpgsql AS $$ BEGIN PERFORM public.evil(); END $$;
		CREATE OPERATOR public./ (LEFTARG = numeric, RIGHTARG = integer, FUNCTION = public.over);
		CREATE FUNCTION public.above(bigint, numeric) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM public.evil(); END $$;
		CREATE OPERATOR public.> (LEFTARG = bigint, RIGHTARG = numeric, FUNCTION = public.above);
		CREATE FUNCTION public.part(bigint, numeric) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM public.evil(); END $$;
		CREATE OPERATOR public./ (LEFTARG = bigint, RIGHTARG = numeric, FUNCTION = public.part);
		CREATE FUNCTION public.same(bytea, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM public.evil(); END $$;
		CREATE OPERATOR public.= (LEFTARG = bytea, RIGHTARG = text, FUNCTION = public.same);
		CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM public.evil(); END $$;
		CREATE FUNCTION public.encode(bytea, unknown_text text DEFAULT '') RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM public.evil(); END $$`)
	pool := testclient.Postgres(t, server.URL())
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, pool)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	for range 20 {
		c := claimed()
		acquire(t, s, c)
		release(t, s, c)
	}
	c, reader, run := claimed(), claimed(), claimed()
	reader.Weight = 1
	run.Record = &store.Record{Value: []byte("begun"), Retain: run.TTL}
	for _, c := range []store.Claim{c, reader, run} {
		acquire(t, s, c)
		acquire(t, s, nested(c))
	}
	for _, x := range s.Extend(t.Context(), []store.Claim{c, reader, run}) {
		if x.Err != nil {
			t.Error(x.Err)
		}
	}
	w := exclusive(c.Key)
	w.Wait, w.Fair = true, true
	wantIs(t, "acquire", second(s.Acquire(t.Context(), w)), store.ErrBusy)
	release(t, s, reader)
	release(t, s, run)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pgstore.CheckToken(t.Context(), tx, "a", 1) })
	if err != nil {
		t.Error(err)
	}
}

// TestHostileKeys checks that no text of a key or a resource is executed as SQL.
func TestHostileKeys(t *testing.T) {
	t.Parallel()
	server := database(t, "standard_conforming_strings = off", "backslash_quote = on", "escape_string_warning = off")
	pool := testclient.Postgres(t, server.URL())
	s := newStore(t, pool)
	for _, key := range []string{
		"'", "''", `\`, `\'`, `\x00`, "$$", "$1", `";--`, "'); DROP SCHEMA lockkit CASCADE; --", "/*", "%s", "größer, 鍵",
		strings.Repeat("'", 512), strings.Repeat(`\`, 512),
	} {
		c, other := exclusive(key), exclusive(key)
		c.Owner, c.Lease = key[:min(len(key), 256)], key[:min(len(key), 256)]
		c.Record = &store.Record{Value: []byte(key + "\x00\xff"), Retain: c.TTL}
		if g := acquire(t, s, c); g.Owner != c.Owner || string(g.Record.Value) != string(c.Record.Value) {
			t.Errorf("%q: got %+v", key, g)
		}
		other.Wait = true
		wantIs(t, key, second(s.Acquire(t.Context(), other)), store.ErrBusy)
		woken, err := s.Watch(t.Context(), other)
		if err != nil {
			t.Fatal(err)
		}
		c.Record = nil
		release(t, s, c)
		<-woken
		for _, token := range []uint64{2, 1} {
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pgstore.CheckToken(t.Context(), tx, key, token) })
			if errors.Is(err, store.ErrLost) != (token == 1) || token == 2 && err != nil {
				t.Errorf("%q: token %d: %v", key, token, err)
			}
		}
	}
	for from, want := range map[string]string{"lockkit.locks": "14", "lockkit.seen": "14"} {
		if n := server.Exec("SELECT count(*) FROM " + from)[0]; n != want {
			t.Errorf("%s has %s rows, want %s", from, n, want)
		}
	}
}

// TestRights checks the minimal rights of a user that locks, and of a user that checks
// tokens. It checks that Check reports missing rights, even a right that is rarely
// needed.
func TestRights(t *testing.T) {
	t.Parallel()
	server := durable.Get(t).NewDatabase(t)
	if err := pgstore.Migrate(t.Context(), testclient.Postgres(t, server.URL())); err != nil {
		t.Fatal(err)
	}
	user := func(rights ...string) (string, *pgstore.Store) {
		name := "u" + strings.ToLower(rand.Text())
		server.Exec("CREATE ROLE " + name + " LOGIN; GRANT USAGE ON SCHEMA lockkit TO " + name)
		for _, r := range rights {
			server.Exec("GRANT " + r + " TO " + name)
		}
		url := strings.Replace(server.URL(), "postgres@", name+"@", 1)
		return url, newStore(t, testclient.Postgres(t, url))
	}
	const locks, version = "SELECT, INSERT, UPDATE, DELETE ON lockkit.locks", "SELECT, UPDATE ON lockkit.version"

	_, s := user(locks, version)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
	for range 20 {
		c := claimed()
		acquire(t, s, c)
		release(t, s, c)
	}
	for want, rights := range map[string][]string{
		"DELETE ON lockkit.locks":           {"SELECT, INSERT, UPDATE ON lockkit.locks", version},
		"INSERT, UPDATE ON lockkit.locks":   {"SELECT, DELETE ON lockkit.locks", version},
		"UPDATE ON lockkit.version":         {locks, "SELECT ON lockkit.version"},
		"SELECT, UPDATE ON lockkit.version": {locks},
	} {
		url, s := user(rights...)
		name := strings.TrimPrefix(strings.Split(url, "@")[0], "postgres://")
		if err := s.Check(t.Context()); err == nil || err.Error() != "pgstore: check: the user lacks rights: GRANT "+want+" TO "+name {
			t.Errorf("got %v, want GRANT %s", err, want)
			continue
		}
		server.Exec("GRANT " + want + " TO " + name)
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("with GRANT %s: %v", want, err)
		}
	}
	_, none := user()
	if _, err := none.Acquire(t.Context(), claimed()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "Check says which GRANT is missing") {
		t.Errorf("acquire: got %v, want a word about Check", err)
	}
	url, _ := user()
	server.Exec("UPDATE lockkit.version SET version = 1")
	if err := pgstore.Migrate(t.Context(), testclient.Postgres(t, url)); err == nil || !strings.Contains(err.Error(), "GRANT") && !strings.Contains(err.Error(), "version") {
		t.Errorf("migrate: got %v, want a word about GRANT", err)
	}
	server.Exec("UPDATE lockkit.version SET version = 7")
	url, _ = user(locks, version)
	err := pgx.BeginFunc(t.Context(), testclient.Postgres(t, url), func(tx pgx.Tx) error { return pgstore.CheckToken(t.Context(), tx, "a", 1) })
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "GRANT SELECT, INSERT, UPDATE ON lockkit.seen") || strings.Contains(err.Error(), "Check says") {
		t.Errorf("check token: got %v, want the GRANT", err)
	}
	begun, last := run(t, s)
	for _, c := range []struct{ right, want string }{
		{"SELECT ON lockkit.locks", "GRANT SELECT ON lockkit.version and GRANT SELECT, UPDATE ON lockkit.locks"},
		{"SELECT, UPDATE ON lockkit.locks", ""},
	} {
		url, _ = user("SELECT ON lockkit.version", c.right)
		err = pgx.BeginFunc(t.Context(), testclient.Postgres(t, url), func(tx pgx.Tx) error { return pgstore.In(tx).SaveRun(t.Context(), s, last) })
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || c.want == "" && err != nil {
			t.Errorf("commit: got %v, want an error with %q", err, c.want)
		}
		answered(t, s, begun, c.want == "")
	}
	url, _ = user("SELECT, INSERT, UPDATE ON lockkit.seen")
	err = pgx.BeginFunc(t.Context(), testclient.Postgres(t, url), func(tx pgx.Tx) error {
		return errors.Join(pgstore.CheckToken(t.Context(), tx, "a", 1), pgstore.CheckToken(t.Context(), tx, "a", 2))
	})
	if err != nil {
		t.Errorf("check token: %v", err)
	}
}
