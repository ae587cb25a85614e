//go:build unix

package main_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

type verdict struct {
	Fit    *bool
	Faults []string
}

func TestCheck(t *testing.T) {
	t.Parallel()
	// unfit fails the test unless a check reports a fault on a line with the prefix
	// line.
	unfit := func(t *testing.T, c call, line string) {
		t.Helper()
		if c.code != 1 || !strings.Contains("\n"+c.out, "\n"+line) {
			t.Errorf("%+v, want a line %q", c, line)
		}
	}
	fit := func(t *testing.T, c call) {
		t.Helper()
		if c != (call{out: "fit\n"}) {
			t.Errorf("%+v", c)
		}
	}
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t, "--appendonly", "yes")
		store := redisURL(server.Addr)
		fit(t, do(t, store, "check"))
		fit(t, do(t, store, "check", "-plain"))
		fit(t, do(t, store, "check", "-redisson"))
		server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
		server.Do("CONFIG", "SET", "appendonly", "no")
		server.Do("CONFIG", "SET", "save", "")
		c := do(t, store, "check")
		unfit(t, c, "maxmemory-policy allkeys-lru")
		unfit(t, c, "nothing is saved to disk")
		var v verdict
		c = do(t, store, "check", "-json")
		if err := json.Unmarshal([]byte(c.out), &v); err != nil || v.Fit == nil || *v.Fit || len(v.Faults) != 2 || c.code != 1 {
			t.Errorf("%+v: %v", c, err)
		}
		server.Do("ACL", "SETUSER", "weak", "on", ">sesame", "~*", "&*", "+info", "+config|get", "+time")
		c = do(t, "redis://weak:sesame@"+server.Addr, "check")
		unfit(t, c, "acquire: ")
		if strings.Contains(c.out+c.errs, "sesame") {
			t.Errorf("the password is shown: %q", c.out)
		}
		server.Kill()
		if c := do(t, store, "check"); c.code != 69 || !strings.Contains(c.out, "refused") {
			t.Errorf("of a server that is down: %+v", c)
		}
		if c := do(t, store, "check", "-json"); c.code != 69 || !strings.HasPrefix(c.out, `{"fit":false`) {
			t.Errorf("of a server that is down: %+v", c)
		}
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		s := testserver.StartSentinel(t)
		for _, scheme := range []string{"redis", "redis+sentinel"} {
			url := fmt.Sprintf("%s://%s?master_name=%s&addr=%s", scheme, s.Sentinels[0].Addr, testserver.SentinelName, s.Sentinels[1].Addr)
			if c := do(t, url, "check"); c.code > 1 {
				t.Errorf("%+v", c)
			}
			do(t, url, "run", "s:1", "--", "true").want(t, 0, "")
		}
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		s := testserver.StartCluster(t, false)
		for _, url := range []string{
			"redis+cluster://" + s.Nodes[0].Addr, "redis://" + s.Nodes[0].Addr + "?addr=" + s.Nodes[1].Addr,
		} {
			if c := do(t, url, "check"); c.code > 1 {
				t.Errorf("%+v", c)
			}
			for _, key := range []string{"c:1", "c:2", "c:3"} {
				do(t, url, "run", key, "--", "true").want(t, 0, "")
			}
		}
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		server := postgres.Get(t).NewDatabase(t)
		url := server.URL()
		unfit(t, do(t, url, "check"), "the schema lockkit")
		do(t, url, "run", "p:1", "--", "true").want(t, 69, "pgstore.Migrate")
		if err := pgstore.Migrate(t.Context(), testclient.Postgres(t, url)); err != nil {
			t.Fatal(err)
		}
		if c := do(t, url, "check"); c.code > 1 || c.code == 1 && !strings.HasPrefix(c.out, "a crash can forget every lock: set fsync = on") {
			t.Errorf("%+v", c) // the tests' server does not sync its commits
		}
		role := "app" + strings.ToLower(rand.Text())
		server.Exec("CREATE ROLE " + role + " LOGIN; GRANT USAGE ON SCHEMA lockkit TO " + role + "; " +
			"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lockkit TO " + role + "; ALTER TABLE lockkit.locks ENABLE ROW LEVEL SECURITY")
		app := strings.Replace(url, "postgres@", role+"@", 1)
		unfit(t, do(t, app, "check"), "row-level security hides lockkit.locks from the user: ALTER TABLE lockkit.locks DISABLE ROW LEVEL SECURITY")
		do(t, app, "ls", "-all").want(t, 69, "row-level security hides lockkit.locks")
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartMariaDB(t).NewDatabase(t)
		url := mariaURL(t, server, "root")
		unfit(t, do(t, url, "check"), "the tables cannot be read as those of MySQL: call Migrate")
		do(t, url, "run", "m:1", "--", "true").want(t, 69, "call Migrate")
		onSQL(t, sqlstore.MySQL, "mysql", server.DSN())
		fit(t, do(t, url, "check"))
		fit(t, do(t, strings.Replace(url, "mariadb", "mysql", 1)+"?clientFoundRows=true&parseTime=true&loc=Local&sql_mode=ANSI", "check"))
		server.Exec("SET GLOBAL innodb_flush_log_at_trx_commit=2; ALTER TABLE lockkit_seen ENGINE=MyISAM; SET GLOBAL read_only=1")
		for _, line := range []string{"a crash can forget locks", "a table is not of InnoDB", "the server is read-only"} {
			unfit(t, do(t, url, "check"), line)
		}
		server.Exec("SET GLOBAL read_only=0")
		if c := do(t, url+"?autocommit=0", "check"); c.code == 0 || !strings.Contains(c.out, "set autocommit=1 in the DSN") || strings.Contains(c.out, "GRANT") {
			t.Errorf("%+v", c) // MariaDB's session can be read, MySQL's cannot
		}
		do(t, url+"?autocommit=0", "run", "m:1", "--", "true").want(t, 69, "autocommit")
		server.Exec("UPDATE lockkit_version SET version=99")
		unfit(t, do(t, url, "check"), "the tables are of version 99")
		do(t, url, "run", "m:1", "--", "true").want(t, 69, "update this program")
		c := do(t, strings.Replace(url, "root@", "nobody:sesame@", 1), "check")
		unfit(t, c, "the tables cannot be read")
		if strings.Contains(c.out+c.errs, "sesame") {
			t.Errorf("the password is shown: %q", c.out)
		}
		server.Kill()
		if c := do(t, url, "check"); c.code != 69 || !strings.Contains(c.out, "refused") {
			t.Errorf("of a server that is down: %+v", c)
		}
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "locks.db")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		unfit(t, do(t, "sqlite://"+path, "check"), "the tables cannot be read as those of SQLite: call Migrate")
		onSQL(t, sqlstore.SQLite, "sqlite", path)
		unfit(t, do(t, "sqlite://"+path, "check"), "readers and writers wait for each other: set journal_mode=WAL")
		_, url := onSQLite(t)
		fit(t, do(t, url, "check"))
	})
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel()
		url := "zk://" + testserver.SharedZooKeeper(t)
		fit(t, do(t, url, "check"))
		fit(t, do(t, url+"/cli/locks", "check"))
		do(t, strings.Replace(url, "//", "//user:pass@", 1)+"/digest", "run", "z:1", "--", "true").want(t, 0, "")
		if c := do(t, url+"/digest", "check"); c.code == 0 {
			t.Errorf("without its user: %+v", c)
		}
		if c := do(t, "zk://127.0.0.1:1", "check"); c.code != 69 {
			t.Errorf("of a server that is down: %+v", c)
		}
	})
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	const refused = "127.0.0.1:1: connect: connection refused"
	for _, store := range []string{
		"redis://127.0.0.1:1", "redis+cluster://127.0.0.1:1", "postgres://u:p@127.0.0.1:1/d", "mysql://u:p@127.0.0.1:1/d", "mariadb://u:p@127.0.0.1:1/d",
	} {
		t.Run(strings.SplitN(store, ":", 2)[0], func(t *testing.T) {
			t.Parallel()
			var v verdict
			c := do(t, store, "check", "-json")
			if err := json.Unmarshal([]byte(c.out), &v); err != nil || len(v.Faults) != 1 || strings.ContainsAny(c.out, "\t") || c.code != 69 {
				t.Errorf("got %+v (%v), want one fault and code 69", c, err)
			}
			for _, c := range []call{do(t, store, "check"), do(t, store, "show", "order:1"), do(t, store, "run", "order:1", "--", "true")} {
				text := c.out + c.errs
				if c.code != 69 || strings.Count(text, "\n") != 1 || strings.Contains(text, ":;") || strings.Contains(text, `\u{`) {
					t.Errorf("got %+v, want one line, and code 69", c)
				}
				if strings.Count(text, refused) != 1 {
					t.Errorf("got %q, want the refusal once", text)
				}
			}
		})
	}
}
