//go:build unix

package main_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

// service returns the Locker of a service whose locks operators inspect.
func service(t testing.TB, s core.Store, opts ...core.Option) *core.Locker {
	t.Helper()
	l, err := core.New(s, append(opts, core.WithObserver(nil))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = l.Close(ctx)
	})
	return l
}

func onRedis(t testing.TB, addr string, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(testclient.Redis(t, addr), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// postgres is the server of the tests that create their own database.
var postgres = testserver.NewShared(func(t testing.TB) *testserver.Postgres {
	return testserver.StartPostgres(t, "max_connections = 300")
})

func onPostgres(t testing.TB) (store core.Store, url string) {
	t.Helper()
	url = postgres.Get(t).NewDatabase(t).URL()
	pool := testclient.Postgres(t, url)
	if err := pgstore.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	return newPostgres(t, pool), url
}

// mariaDB is the server of the tests that create their own database.
var mariaDB = testserver.NewShared(func(t testing.TB) *testserver.MariaDB { return testserver.StartMariaDB(t) })

// mariaURL returns the URL of a database, as user.
func mariaURL(t testing.TB, server *testserver.MariaDB, user string) string {
	t.Helper()
	return "mariadb://" + user + "@" + server.Addr + "/" + server.Exec("SELECT DATABASE()")[0]
}

func onMariaDB(t testing.TB) (store core.Store, url string) {
	t.Helper()
	server := mariaDB.Get(t).NewDatabase(t)
	return onSQL(t, sqlstore.MySQL, "mysql", server.DSN()), mariaURL(t, server, "root")
}

// onSQLite returns a store in a file whose path has characters with a meaning in URLs
// and DSNs.
func onSQLite(t testing.TB) (store core.Store, url string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a b?c#d%41@e.db")
	const settings = "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	return onSQL(t, sqlstore.SQLite, "sqlite", "file:"+strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)+settings), "sqlite://" + path
}

func onSQL(t testing.TB, d sqlstore.Dialect, driver, dsn string) core.Store {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := sqlstore.Migrate(t.Context(), db, d); err != nil {
		t.Fatal(err)
	}
	s, err := sqlstore.New(db, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newPostgres(t testing.TB, pool *pgxpool.Pool) core.Store {
	t.Helper()
	s, err := pgstore.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func acquire(t testing.TB, l *core.Locker, key string, opts ...core.AcquireOption) *core.Lease {
	t.Helper()
	// A server that has just started may be too slow for the first attempts.
	lease, err := l.Acquire(t.Context(), key, opts...)
	for end := time.Now().Add(patience); errors.Is(err, core.ErrUnavailable) && time.Now().Before(end); {
		lease, err = l.Acquire(t.Context(), key, opts...)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// shown has fields of the output of -json.
type shown struct {
	State, Key, Name, Hold, Mode, Process, Service, Host, Trace string
	PID                                                         int
	For                                                         int64 `json:"for_ms"`
	Left                                                        int64 `json:"left_ms"`
	Weight                                                      int64
}

func (c call) rows(t testing.TB) (rows []shown) {
	t.Helper()
	c.want(t, 0, "")
	for line := range strings.Lines(c.out) {
		var s shown
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		rows = append(rows, s)
	}
	return rows
}

// noSecrets fails the test if the output contains the lease's token or owner, or the
// eight characters after the process in the owner.
func (c call) noSecrets(t testing.TB, l *core.Lease) {
	t.Helper()
	for _, secret := range []string{l.Owner(), l.Owner()[8:16], fmt.Sprint(l.Token())} {
		if strings.Contains(c.out+c.errs, secret) {
			t.Errorf("it shows %q: %q %q", secret, c.out, c.errs)
		}
	}
}

func TestOperators(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	stores := map[string]func(t *testing.T) (core.Store, string){
		"Redis":      func(t *testing.T) (core.Store, string) { return onRedis(t, server.Addr), redisURL(server.Addr) },
		"PostgreSQL": func(t *testing.T) (core.Store, string) { return onPostgres(t) },
		"MariaDB":    func(t *testing.T) (core.Store, string) { return onMariaDB(t) },
		"SQLite":     func(t *testing.T) (core.Store, string) { return onSQLite(t) },
	}
	for name, start := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, url := start(t)
			locks := service(t, s)
			t.Run("show", func(t *testing.T) {
				lease := acquire(t, locks, "show:1")
				got := make(chan error, 1)
				other := service(t, s)
				go func() {
					got <- other.Do(context.Background(), "show:1", func(context.Context) error { return nil }, core.Fair())
				}()
				var c call
				for deadline := time.Now().Add(patience); ; {
					c = served(t, url, "show", "-json", "show:1")
					rows := c.rows(t)
					if len(rows) == 2 && rows[1].State == "waits" {
						if r := rows[0]; r.State != "held" || r.Key != "show:1" || r.Name != "show" || r.Hold != lease.ID() || r.Left <= 0 || r.Left > 30_000 ||
							r.Mode != "exclusive" || r.Process != lease.Owner()[:8] || rows[1].Process == "" || rows[1].Process == r.Process {
							t.Errorf("%+v", rows)
						}
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("the waiter is not shown: %+v", rows)
					}
					time.Sleep(10 * time.Millisecond)
				}
				c.noSecrets(t, lease)
				c = served(t, url, "show", "show:1")
				c.want(t, 0, "")
				c.noSecrets(t, lease)
				if !strings.Contains(c.out, lease.ID()+"  show:1  (exclusive, process "+lease.Owner()[:8]+")\n") {
					t.Errorf("%q", c.out)
				}
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
				if err := <-got; err != nil {
					t.Error(err)
				}
				if c := served(t, url, "show", "show:1"); c.code != 0 || !strings.HasPrefix(c.out, "free") || c.errs != "" {
					t.Errorf("%+v", c)
				}
			})
			t.Run("two operators revoke one hold", func(t *testing.T) {
				// The TTL is long enough for the commands to finish before an extension.
				lease := acquire(t, locks, "revoke:1", core.TTL(6*time.Second))
				var lost time.Time
				gone := make(chan struct{})
				go func() {
					defer close(gone)
					<-lease.Context().Done()
					lost = time.Now()
				}()
				var calls [2]call
				var wg sync.WaitGroup
				for i := range calls {
					wg.Go(func() { calls[i] = served(t, url, "revoke", "revoke:1", lease.ID()) })
				}
				wg.Wait()
				slices.SortFunc(calls[:], func(a, b call) int { return a.code - b.code })
				calls[0].want(t, 0, "")
				// A busy machine did not answer in time: repeat the command.
				for calls[1].code == 69 {
					calls[1] = served(t, url, "revoke", "revoke:1", lease.ID())
				}
				calls[1].want(t, 70, "no such hold")
				next := acquire(t, service(t, s), "revoke:1")
				now := time.Now()
				<-gone
				if !lost.Before(now) || !errors.Is(context.Cause(lease.Context()), core.ErrLost) {
					t.Errorf("the next one was granted %v before the holder learned of it (%v)", lost.Sub(now), context.Cause(lease.Context()))
				}
				served(t, url, "revoke", "revoke:1", lease.ID()).want(t, 70, "nothing has changed")
				if c := served(t, url, "show", "-json", "revoke:1"); len(c.rows(t)) != 1 || c.rows(t)[0].Hold != next.ID() {
					t.Errorf("a late revoke has changed something: %+v", c)
				}
			})
			t.Run("release", func(t *testing.T) {
				lease := acquire(t, locks, "free:1", core.TTL(time.Hour))
				served(t, url, "release", "free:1", lease.ID()).want(t, 64, "-now")
				for _, typed := range []string{"", "y\n", "yes\n", lease.ID()[1:] + "\n"} {
					cmd := lockkit(t, url, "release", "-now", "free:1", lease.ID())
					cmd.Stdin = strings.NewReader(typed)
					end(t, cmd).want(t, 64, "nothing was released")
				}
				if _, err := service(t, s).TryAcquire(t.Context(), "free:1"); !errors.Is(err, core.ErrBusy) {
					t.Fatalf("got %v, want busy", err)
				}
				cmd := lockkit(t, url, "release", "-now", "free:1", lease.ID())
				cmd.Stdin = strings.NewReader(lease.ID() + "\n")
				end(t, cmd).want(t, 0, "Another process can acquire the key")
				next := acquire(t, service(t, s), "free:1", core.Wait(0))
				served(t, url, "release", "-now", "-yes", "free:1", lease.ID()).want(t, 70, "no such hold")
				c := served(t, url, "release", "-json", "-now", "-yes", "free:1", next.ID())
				c.want(t, 0, "")
				if c.out != fmt.Sprintf("{\"hold\":%q,\"ended\":true}\n", next.ID()) {
					t.Errorf("%q", c.out)
				}
			})
			t.Run("list while keys come and go", func(t *testing.T) {
				var want []string
				for i := range 210 { // more than a page
					acquire(t, locks, fmt.Sprintf("stays:%d", i))
					want = append(want, fmt.Sprintf("stays:%d", i))
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for i := range 4 {
					wg.Go(func() {
						for n := 0; ctx.Err() == nil; n++ {
							_ = locks.Do(ctx, fmt.Sprintf("goes:%d:%d", i, n), func(context.Context) error { return nil })
							// A server that is never idle completes no list in time.
							time.Sleep(5 * time.Millisecond)
						}
					})
				}
				for range 3 {
					seen := make(map[string]bool)
					for _, r := range served(t, url, "ls", "-all", "-json", "stays").rows(t) {
						seen[r.Key] = r.State == "held" && r.Name == "stays" && r.Hold != ""
					}
					for _, key := range want {
						if !seen[key] {
							t.Errorf("%s is not listed", key)
							break
						}
					}
				}
				cancel()
				wg.Wait()
				if c := served(t, url, "ls", "-all", "-held", "1h"); c.code != 0 || strings.Count(c.out, "\n") != 1 {
					t.Errorf("%+v", c)
				}
				reader, err := locks.Acquire(t.Context(), "reader:1", core.Shared())
				if err != nil {
					t.Fatal(err)
				}
				all, old := served(t, url, "ls", "-all", "-json", "reader").rows(t), served(t, url, "ls", "-all", "-json", "-held", "1h", "reader").rows(t)
				if len(all) != 1 || (len(old) == 1) != (all[0].For == 0) {
					t.Errorf("got %+v, and %+v with -held", all, old)
				}
				if err := reader.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
			t.Run("cards name the process", func(t *testing.T) {
				ofService := service(t, s, core.WithCard(core.Card{Service: "billing", Version: "1.4", Trace: func(context.Context) string { return "trace-1" }}))
				lease := acquire(t, ofService, "card:1")
				hostile := core.Card{Process: "EVIL", Service: "\x1b[2J\nheld", Entries: []store.CardEntry{{Name: "x", Key: "x:\x07", For: time.Hour}}}
				if err := s.(store.Cards).Put(t.Context(), hostile, time.Hour); err != nil {
					t.Fatal(err)
				}
				for deadline := time.Now().Add(patience); ; time.Sleep(time.Second) {
					rows := served(t, url, "ls", "-json", "card").rows(t)
					if len(rows) == 1 && rows[0].Hold == lease.ID() && rows[0].Service == "billing" && rows[0].PID > 0 && rows[0].For >= 5000 && rows[0].Trace == "trace-1" && rows[0].Mode == "exclusive" {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("%+v", rows)
					}
				}
				c := served(t, url, "show", "card:1")
				c.want(t, 0, "")
				if !strings.Contains(c.out, "(exclusive, billing 1.4, host ") || !strings.Contains(c.out, ", trace trace-1)\n") {
					t.Errorf("%q", c.out)
				}
				c = served(t, url, "ls")
				if strings.ContainsAny(c.out, "\x1b\x07") || strings.Contains(c.out, "\nheld\n") || !strings.Contains(c.out, `"x:\a"`) {
					t.Errorf("%q", c.out)
				}
				if rows := served(t, url, "ls", "-json", "-held", "2h").rows(t); len(rows) != 0 {
					t.Errorf("%+v", rows)
				}
			})
			served(t, url, "show", "a\nb").want(t, 64, "printable")
			served(t, url, "revoke", "a").want(t, 64, "usage: lockkit revoke [flags] KEY HOLD; see lockkit revoke -h")
			served(t, url, "show").want(t, 64, "usage")
			served(t, url, "ls", "a", "b").want(t, 64, "usage")
		})
	}
}

func TestOperatorsWithoutRights(t *testing.T) {
	t.Parallel()
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		lease := acquire(t, service(t, onRedis(t, server.Addr)), "order:1")
		for _, x := range []struct {
			without string
			args    []string
		}{
			{"scan", []string{"ls", "-all"}},
			{"mget", []string{"show", "order:1"}},
			{"hgetall", []string{"ls"}},
			{"set", []string{"revoke", "order:1", lease.ID()}},
		} {
			server.Do("ACL", "SETUSER", "op", "reset", "on", ">sesame", "~lk2:*", "&*", "+@all", "-"+x.without)
			c := do(t, "redis://op:sesame@"+server.Addr, x.args...)
			c.errs = strings.ToLower(c.errs)
			c.want(t, 69, x.without)
			if strings.Contains(c.out+c.errs, "sesame") {
				t.Errorf("the password is shown: %q", c.errs)
			}
		}
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("the hold is gone: %v", err)
		}
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		server := postgres.Get(t).NewDatabase(t)
		pool := testclient.Postgres(t, server.URL())
		if err := pgstore.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, service(t, newPostgres(t, pool)), "order:1")
		role := "op" + strings.ToLower(rand.Text())
		for _, text := range []string{
			"CREATE ROLE " + role + " LOGIN PASSWORD 'sesame'", "GRANT USAGE ON SCHEMA lockkit TO " + role,
		} {
			if _, err := pool.Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		_, rest, _ := strings.Cut(server.URL(), "@")
		url := "postgres://" + role + ":sesame@" + rest
		for _, args := range [][]string{{"ls", "-all"}, {"show", "order:1"}, {"ls"}, {"revoke", "order:1", lease.ID()}} {
			c := do(t, url, args...)
			for tries := 1; tries < 20 && strings.Contains(c.errs, "no answer"); tries++ {
				c = do(t, url, args...) // the machine was busy
			}
			c.want(t, 69, "GRANT SELECT")
			if strings.Contains(c.out+c.errs, "sesame") {
				t.Errorf("the password is shown: %q", c.errs)
			}
		}
	})
}

func TestOperatorsOfMariaDBWithoutRights(t *testing.T) {
	t.Parallel()
	server := mariaDB.Get(t).NewDatabase(t)
	lease := acquire(t, service(t, onSQL(t, sqlstore.MySQL, "mysql", server.DSN())), "order:1")
	user, database := "u"+strings.ToLower(rand.Text()), server.Exec("SELECT DATABASE()")[0]
	server.Exec("CREATE USER " + user + " IDENTIFIED BY 'ses@me/?'; GRANT SELECT ON " + database + ".* TO " + user)
	url := mariaURL(t, server, user+":ses%40me%2F%3F")
	if rows := served(t, url, "show", "-json", "order:1").rows(t); len(rows) != 1 || rows[0].Hold != lease.ID() {
		t.Errorf("a reader is shown %+v", rows)
	}
	c := served(t, url, "revoke", "order:1", lease.ID())
	c.want(t, 69, "UPDATE")
	if strings.Contains(c.out+c.errs, "ses") {
		t.Errorf("the password is shown: %q", c.errs)
	}
	served(t, strings.Replace(url, "%3F", "", 1), "show", "order:1").want(t, 69, "Access denied")
	if err := lease.Extend(t.Context(), time.Minute); err != nil {
		t.Errorf("the hold is gone: %v", err)
	}
}

func TestOperatorsOfZooKeeperWithoutRights(t *testing.T) {
	t.Parallel()
	const root = "/private"
	conn := testclient.ZooKeeper(t, 10*time.Second, testserver.SharedZooKeeper(t))
	if err := conn.AddAuth("digest", []byte("ours:open")); err != nil {
		t.Fatal(err)
	}
	acl := append(zk.DigestACL(zk.PermAll, "ours", "open"), zk.DigestACL(zk.PermRead, "reader", "sesame")...)
	store, err := zkstore.New(conn, zkstore.WithRoot(root), zkstore.WithACL(acl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	lease := acquire(t, service(t, store), "order:1")
	if err := store.Put(t.Context(), core.Card{Process: "P1"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		user, right string
		args        []string
	}{
		{"nobody", "right READ", []string{"ls", "-all"}},
		{"nobody", "right READ", []string{"show", "order:1"}},
		{"nobody", "right READ", []string{"ls"}},
		{"nobody", "right READ", []string{"revoke", "order:1", lease.ID()}},
		{"reader", "right ADMIN", []string{"revoke", "order:1", lease.ID()}},
		{"reader", "CREATE or DELETE", []string{"release", "-now", "-yes", "order:1", lease.ID()}},
	} {
		c := do(t, "zk://"+x.user+":sesame@"+testserver.SharedZooKeeper(t)+root, x.args...)
		c.want(t, 69, x.right)
		if strings.Contains(c.out+c.errs, "sesame") || strings.Contains(c.errs, "order") {
			t.Errorf("%s %q: %q", x.user, x.args, c.errs)
		}
	}
	if rows := do(t, "zk://reader:sesame@"+testserver.SharedZooKeeper(t)+root, "show", "-json", "order:1").rows(t); len(rows) != 1 || rows[0].Hold != lease.ID() {
		t.Errorf("a reader is shown %+v", rows)
	}
	if err := lease.Extend(t.Context(), time.Minute); err != nil {
		t.Errorf("the hold is gone: %v", err)
	}
}

func TestOperatorsOnOtherStores(t *testing.T) {
	t.Parallel()
	t.Run("Sentinel and a Cluster", func(t *testing.T) {
		t.Parallel()
		sentinel, cluster := testserver.StartSentinel(t), testserver.StartCluster(t, false)
		for _, url := range []string{
			fmt.Sprintf("redis+sentinel://%s?master_name=%s", sentinel.Sentinels[0].Addr, testserver.SentinelName),
			"redis+cluster://" + cluster.Nodes[0].Addr,
		} {
			files := make([]string, 6)
			for i := range files {
				files[i] = file(t)
				runWorker(t, url, files[i], fmt.Sprintf("job:%d", i))
				awaitBegin(t, files[i])
			}
			rows := served(t, url, "ls", "-all", "-json").rows(t)
			slices.SortFunc(rows, func(a, b shown) int { return strings.Compare(a.Key, b.Key) })
			if len(rows) != len(files) {
				t.Fatalf("%+v", rows)
			}
			served(t, url, "revoke", "job:3", rows[3].Hold).want(t, 0, "")
			if rows := served(t, url, "show", "-json", "job:3").rows(t); len(rows) != 1 || rows[0].State != "kept" || rows[0].Hold != "" {
				t.Errorf("%+v", rows)
			}
		}
	})
	t.Run("plain keys", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		lease := acquire(t, service(t, onRedis(t, server.Addr, redisstore.WithPlainKeys(), redisstore.WithPrefix("p:"))), "order:1")
		flags := []string{"-plain", "-prefix", "p:"}
		url := redisURL(server.Addr)
		c := served(t, url, append(append([]string{"show"}, flags...), "-json", "order:1")...)
		rows := c.rows(t)
		if len(rows) != 1 || rows[0].Hold != lease.ID() || rows[0].Process != "" {
			t.Fatalf("%+v, want %s and no process", rows, lease.ID())
		}
		if strings.Contains(c.out, lease.Owner()) {
			t.Error("it shows the owner")
		}
		served(t, url, append([]string{"ls"}, flags...)...).want(t, 64, "ls -all")
		if c := served(t, url, append(append([]string{"ls"}, flags...), "-all")...); !strings.Contains(c.out, lease.ID()) {
			t.Errorf("%+v", c)
		}
		served(t, url, append(append([]string{"revoke"}, flags...), "order:1", lease.ID())...).want(t, 0, "")
	})
	t.Run("locks of Redisson", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		client := testclient.Redis(t, server.Addr)
		l := service(t, onRedis(t, server.Addr, redisstore.WithRedisson()))
		lease, url := acquire(t, l, "order:1"), redisURL(server.Addr)
		const thread = "285475da-9152-4c83-822a-67ee2f116a79:52"
		theirs := func(key string) string {
			if err := errors.Join(client.HSet(t.Context(), key, thread, 1).Err(), client.PExpire(t.Context(), key, time.Hour).Err()); err != nil {
				t.Fatal(err)
			}
			rows := served(t, url, "show", "-redisson", "-json", key).rows(t)
			if len(rows) != 1 || rows[0].State != "held" || rows[0].Process != "" {
				t.Fatalf("%+v, want a hold without a process", rows)
			}
			return rows[0].Hold
		}
		rows := served(t, url, "show", "-redisson", "-json", "order:1").rows(t)
		if len(rows) != 1 || rows[0].Hold != lease.ID() || rows[0].Process == "" {
			t.Fatalf("%+v, want %s and its process", rows, lease.ID())
		}
		second, third := theirs("order:2"), theirs("order:3")
		served(t, url, "ls", "-redisson").want(t, 64, "ls -all")
		c := served(t, url, "ls", "-redisson", "-all")
		for _, hold := range []string{lease.ID(), second, third} {
			if !strings.Contains(c.out, hold) || strings.Contains(c.out, thread) {
				t.Errorf("%+v, want %s and no thread", c, hold)
			}
		}
		served(t, url, "revoke", "-redisson", "order:1", lease.ID()).want(t, 0, "")
		<-lease.Context().Done()
		served(t, url, "revoke", "-redisson", "order:2", second).want(t, 0, "")
		served(t, url, "revoke", "-redisson", "order:2", second).want(t, 70, "no such hold")
		if _, err := l.TryAcquire(t.Context(), "order:2"); !errors.Is(err, core.ErrBusy) {
			t.Errorf("got %v, want busy for the rest of the revoked hold", err)
		}
		served(t, url, "release", "-redisson", "-now", "-yes", "order:3", third).want(t, 0, "")
		_ = acquire(t, l, "order:3")
		do(t, url, "show", "-redisson", "-plain", "order:1").want(t, 64, "exclude each other")
	})
	t.Run("a store that is down", func(t *testing.T) {
		t.Parallel()
		do(t, "redis://127.0.0.1:1", "show", "order:1").want(t, 69, "lockkit: lock store unavailable: dial tcp 127.0.0.1:1: connect: connection refused")
	})
	t.Run("ZooKeeper", func(t *testing.T) {
		t.Parallel()
		url := "zk://" + testserver.SharedZooKeeper(t) + "/operators"
		out := file(t)
		runWorker(t, url, out, "job:1")
		awaitBegin(t, out)
		served(t, url, "ls").want(t, 0, "")
		rows := served(t, url, "ls", "-all", "-json").rows(t)
		if len(rows) != 1 || rows[0].Key != "job:1" || rows[0].State != "held" || rows[0].Hold == "" || rows[0].Process == "" {
			t.Fatalf("%+v", rows)
		}
		served(t, url, "revoke", "job:1", rows[0].Hold).want(t, 0, "")
		if rows := served(t, url, "show", "-json", "job:1").rows(t); len(rows) != 1 || rows[0].State != "kept" || rows[0].Hold != "" {
			t.Errorf("%+v", rows)
		}
		served(t, url, "revoke", "job:1", rows[0].Hold).want(t, 70, "no such hold")
	})
	t.Run("progress of a long list", func(t *testing.T) {
		t.Parallel()
		server := testserver.StartRedis(t)
		client := testclient.Redis(t, server.Addr)
		pipe := client.Pipeline()
		for i := range 2000 {
			pipe.Set(t.Context(), fmt.Sprintf("p:k:%d", i), "somebody", time.Hour)
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
		proxy := testserver.NewRedisProxy(t, server.Addr)
		proxy.OnRequest(func(r testserver.Request) testserver.Action {
			if r.Name == "scan" {
				// lockkit reports progress every 2 s, and there are 10 pages.
				time.Sleep(400 * time.Millisecond)
			}
			return testserver.Pass
		})
		c := do(t, redisURL(proxy.Addr), "ls", "-all", "-plain", "-prefix", "p:")
		c.want(t, 0, " keys so far\n")
		if n := strings.Count(c.out, "\nheld "); n != 2000 {
			t.Errorf("%d lines", n)
		}
	})
}

// TestOperatorsOfASilentServer checks the commands on a server that accepts connections
// and never answers, like a ZooKeeper without a majority of its servers.
func TestOperatorsOfASilentServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	go func() {
		for conn, err := silent.Accept(); err == nil; conn, err = silent.Accept() {
			defer conn.Close()
		}
	}()
	addr, hold := silent.Addr().String(), store.HoldID("lease")
	for url, awaited := range map[string]string{
		"zk://" + addr:                           "no ZooKeeper session: a majority of the servers must be up",
		"zk://ours:sesame@" + addr + "/root":     "no ZooKeeper session",
		"redis://" + addr:                        "lock store unavailable",
		"redis://ours:sesame@" + addr + "/0":     "lock store unavailable",
		"postgres://ours:sesame@" + addr + "/db": "lock store unavailable",
		"mysql://ours:sesame@" + addr + "/db":    "lock store unavailable",
	} {
		for _, args := range [][]string{{"ls"}, {"ls", "-all"}, {"show", "order:1"}, {"revoke", "order:1", hold}, {"release", "-now", "-yes", "order:1", hold}} {
			t.Run(url+" "+args[0], func(t *testing.T) {
				t.Parallel()
				cmd := lockkit(t, url, args...)
				cmd.Env = append(cmd.Env, answerLimit+"=300ms")
				c := end(t, cmd)
				c.want(t, 69, "lockkit: no answer from "+addr+" within 300 ms: ")
				c.want(t, 69, awaited)
				if strings.Contains(c.errs, "sesame") {
					t.Errorf("the password is shown: %q", c.errs)
				}
				if strings.Contains(c.errs, "inspect:") || strings.Contains(c.errs, "store:") {
					t.Errorf("packages of the kit are shown: %q", c.errs)
				}
			})
		}
	}
}
