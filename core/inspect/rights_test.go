package inspect_test

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

// refused requests a view of the hold of order:1. It fails the test unless the page
// names the missing right and contains no key.
func refused(t *testing.T, store core.Store, view, hold, right string) {
	t.Helper()
	h := inspect.Handler(newInspector(t, store), all("ann"))
	a := post(h, "view="+view, url.Values{"key": {"order:1"}, "hold": {hold}, "confirm": {hold}})
	if view == "" {
		a = get(h, "")
	}
	a.want(t, http.StatusServiceUnavailable)
	_, said, _ := strings.Cut(a.body, `<p class="error" role="alert">`)
	said, _, _ = strings.Cut(said, "</p>")
	if !strings.Contains(strings.ToLower(said), strings.ToLower(right)) || strings.Contains(a.body, "order:1") {
		t.Errorf("the view %q without the right %s: %q", view, right, said)
	}
	if a.Header().Get("Retry-After") == "" {
		t.Errorf("the view %q does not say when to come back", view)
	}
}

func TestPage_MissingRight(t *testing.T) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		user := func(name, without string) *redisstore.Store {
			server.Do("ACL", "SETUSER", name, "reset", "on", ">secret", "~lk2:*", "resetchannels", "&lk2:*", "+@all", "-"+without)
			store, err := redisstore.New(testclient.Redis(t, server.Addr, func(o *redis.Options) { o.Username, o.Password = name, "secret" }))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			return store
		}
		c := claim("order:1")
		s := user("holds", "flushall")
		take(t, s, c)
		hold := store.HoldID(c.Lease)
		for _, x := range []struct{ without, view string }{
			{"scan", "list"}, {"mget", "lock"}, {"hgetall", ""}, {"mget", "revoke"}, {"set", "revoke"}, {"set", "release"},
		} {
			refused(t, user("no-"+x.without, x.without), x.view, hold, x.without)
		}
		post(inspect.Handler(newInspector(t, user("no-scan", "scan")), all("ann")), "view=lock", url.Values{"key": {"order:1"}}).want(t, 200)
		var nodes []core.Store
		for range 3 {
			nodes = append(nodes, user("no-mget", "mget"))
		}
		quorum, err := redlock.New(nodes, redlock.WithNodeTimeout(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { quorum.Close() })
		for _, view := range []string{"lock", "revoke", "release"} {
			refused(t, quorum, view, hold, "mget")
		}
		if x := s.Extend(t.Context(), []store.Claim{c}); x[0].Err != nil {
			t.Errorf("the hold is gone: %v", x[0].Err)
		}

		server.Kill()
		for _, view := range []string{"lock", "revoke", "release"} {
			a := post(inspect.Handler(newInspector(t, s), all("ann")), "view="+view, url.Values{"key": {"order:1"}, "hold": {hold}, "confirm": {hold}})
			if a.want(t, http.StatusServiceUnavailable); strings.Contains(a.body, "order:1") {
				t.Errorf("%s of a dead server shows %s", view, a.body)
			}
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := postgresServer.Get(t).NewDatabase(t)
		owner := testclient.Postgres(t, server.URL())
		if err := pgstore.Migrate(t.Context(), owner); err != nil {
			t.Fatal(err)
		}
		s := newPostgres(t, owner)
		c := claim("order:1")
		take(t, s, c)
		hold := store.HoldID(c.Lease)
		user := func(grants ...string) core.Store {
			name := strings.ToLower("u" + rand.Text())
			server.Exec("CREATE ROLE " + name + " LOGIN")
			for _, g := range grants {
				server.Exec("GRANT " + g + " TO " + name)
			}
			return newPostgres(t, testclient.Postgres(t, strings.Replace(server.URL(), "postgres@", name+"@", 1)))
		}
		const usage, reading = "USAGE ON SCHEMA lockkit", "SELECT ON lockkit.locks, lockkit.version"
		stranger, bystander := user(), user(usage)
		for _, view := range []string{"lock", "list", "", "revoke", "release"} {
			refused(t, stranger, view, hold, "GRANT "+usage)
		}
		for _, view := range []string{"lock", "list", ""} {
			refused(t, bystander, view, hold, "GRANT "+reading)
		}
		reads := user(usage, reading)
		refused(t, reads, "revoke", hold, "GRANT SELECT, UPDATE ON lockkit.locks")
		refused(t, reads, "release", hold, "GRANT SELECT, UPDATE ON lockkit.locks")
		post(inspect.Handler(newInspector(t, reads)), "view=lock", url.Values{"key": {"order:1"}}).want(t, 200)
		if x := s.Extend(t.Context(), []store.Claim{c}); x[0].Err != nil {
			t.Errorf("the hold is gone: %v", x[0].Err)
		}
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		server := mariaServer.Get(t).NewDatabase(t)
		s, database := newSQL(t, sqlstore.MySQL, "mysql", server.DSN()), server.Exec("SELECT DATABASE()")[0]
		c := claim("order:1")
		take(t, s, c)
		hold := store.HoldID(c.Lease)
		user := func(grant string) *sqlstore.Store {
			name := strings.ToLower("u" + rand.Text())
			server.Exec("CREATE USER " + name + "; GRANT " + grant + " TO " + name)
			return newSQL(t, sqlstore.MySQL, "mysql", strings.Replace(server.DSN(), "root@", name+"@", 1))
		}
		stranger, reads := user("INSERT ON "+database+".*"), user("SELECT ON "+database+".*")
		for _, view := range []string{"lock", "list", "", "revoke", "release"} {
			refused(t, stranger, view, hold, "SELECT command denied")
		}
		refused(t, reads, "revoke", hold, "UPDATE command denied")
		refused(t, reads, "release", hold, "UPDATE command denied")
		post(inspect.Handler(newInspector(t, reads)), "view=lock", url.Values{"key": {"order:1"}}).want(t, 200)
		if x := s.Extend(t.Context(), []store.Claim{c}); x[0].Err != nil {
			t.Errorf("the hold is gone: %v", x[0].Err)
		}
	})
	t.Run("zookeeper", func(t *testing.T) {
		t.Parallel()
		acl := append(zk.DigestACL(zk.PermAll, "ours", "secret"), zk.DigestACL(zk.PermRead, "reads", "secret")...)
		user := func(name string) *zkstore.Store {
			conn := testclient.ZooKeeper(t, 10*time.Second, testserver.SharedZooKeeper(t))
			if err := conn.AddAuth("digest", []byte(name+":secret")); err != nil {
				t.Fatal(err)
			}
			store, err := zkstore.New(conn, zkstore.WithRoot("/rights"), zkstore.WithACL(acl))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { store.Close() })
			return store
		}
		s := user("ours")
		c := claim("order:1")
		take(t, s, c)
		if err := s.Put(t.Context(), core.Card{Process: "P1"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		hold := store.HoldID(c.Lease)
		stranger, reads := user("nobody"), user("reads")
		for _, view := range []string{"lock", "list", "", "revoke", "release"} {
			refused(t, stranger, view, hold, "the right READ")
		}
		refused(t, reads, "revoke", hold, "CREATE or DELETE")
		refused(t, reads, "release", hold, "CREATE or DELETE")
		post(inspect.Handler(newInspector(t, reads)), "view=lock", url.Values{"key": {"order:1"}}).want(t, 200)
		if x := s.Extend(t.Context(), []store.Claim{c}); x[0].Err != nil {
			t.Errorf("the hold is gone: %v", x[0].Err)
		}
	})
}
