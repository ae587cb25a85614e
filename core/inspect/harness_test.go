package inspect_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/inspect"
	"github.com/lockkit/lockkit/core/internal/offline"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(offline.Dialing)) }

var (
	redisServer    = testserver.NewShared(func(t testing.TB) *testserver.Redis { return testserver.StartRedis(t) })
	postgresServer = testserver.NewShared(func(t testing.TB) *testserver.Postgres { return testserver.StartPostgres(t) })
	mariaServer    = testserver.NewShared(func(t testing.TB) *testserver.MariaDB { return testserver.StartMariaDB(t) })
)

// onStores runs fn on the reference store and on a real Redis with its own prefix.
func onStores(t *testing.T, fn func(t *testing.T, store core.Store)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		fn(t, memstore.New())
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		fn(t, newRedis(t))
	})
}

// onEveryStore runs fn like onStores, and also on a real ZooKeeper, PostgreSQL and
// MariaDB, and on SQLite.
func onEveryStore(t *testing.T, fn func(t *testing.T, store core.Store)) {
	t.Helper()
	onStores(t, fn)
	t.Run("zookeeper", func(t *testing.T) {
		t.Parallel()
		fn(t, newZooKeeper(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		pool := testclient.Postgres(t, postgresServer.Get(t).NewDatabase(t).URL())
		if err := pgstore.Migrate(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		fn(t, newPostgres(t, pool))
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		fn(t, newSQL(t, sqlstore.MySQL, "mysql", mariaServer.Get(t).NewDatabase(t).DSN()))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		const settings = "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
		fn(t, newSQL(t, sqlstore.SQLite, "sqlite", "file:"+filepath.Join(t.TempDir(), "locks.db")+settings))
	})
}

// newSQL returns a store and creates its tables, if it has the right to do so.
func newSQL(t *testing.T, d sqlstore.Dialect, driver, dsn string) *sqlstore.Store {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A call can use the file for a moment after its context is done.
		testserver.Eventually(t, time.Minute, "no connection is in use", func() bool { return db.Stats().InUse == 0 })
		db.Close()
	})
	_ = sqlstore.Migrate(t.Context(), db, d)
	store, err := sqlstore.New(db, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func newZooKeeper(t *testing.T, opts ...zkstore.Option) *zkstore.Store {
	t.Helper()
	conn := testclient.ZooKeeper(t, 40*time.Second, testserver.SharedZooKeeper(t))
	store, err := zkstore.New(conn, append([]zkstore.Option{zkstore.WithRoot("/" + rand.Text())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func newPostgres(t *testing.T, pool *pgxpool.Pool) *pgstore.Store {
	t.Helper()
	store, err := pgstore.New(pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func newRedis(t *testing.T) *redisstore.Store {
	t.Helper()
	store, err := redisstore.New(testclient.Redis(t, redisServer.Get(t).Addr), redisstore.WithPrefix(rand.Text()+":"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return store
}

func newInspector(t testing.TB, store core.Store, opts ...inspect.Option) *inspect.Inspector {
	t.Helper()
	in, err := inspect.New(store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// closeNow closes l without waiting for its leases.
func closeNow(l *core.Locker) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	l.Close(ended)
}

func newLocker(t testing.TB, store core.Store) *core.Locker {
	t.Helper()
	l, err := core.New(store, core.WithObserver(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeNow(l)
		// closeNow has released the test's leases. This call waits for the clean-up
		// in the background.
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Log(err)
		}
	})
	return l
}

func acquire(t testing.TB, l *core.Locker, key string, opts ...core.AcquireOption) *core.Lease {
	t.Helper()
	lease, err := l.Acquire(context.Background(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// claim returns a claim of a new owner.
func claim(key string) store.Claim {
	return store.Claim{Key: key, Owner: rand.Text(), Lease: rand.Text(), Weight: store.All, Limit: store.All, TTL: time.Minute}
}

// lasting returns a claim for a test that walks through many locks on a busy machine.
func lasting(key string) store.Claim {
	c := claim(key)
	c.TTL = time.Hour
	return c
}

func take(t testing.TB, store core.Store, c store.Claim) {
	t.Helper()
	if _, err := store.Acquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// all allows every action, to an operator named who.
func all(who string) inspect.HandlerOption {
	return inspect.Allow(func(*http.Request, inspect.Action) (string, error) { return who, nil })
}

type answer struct {
	*httptest.ResponseRecorder
	body string
}

// get requests a page, and post sends a form to a page as a browser does. The functions
// edit change the request.
func get(h http.Handler, query string, edit ...func(*http.Request)) answer {
	return send(h, httptest.NewRequest("GET", "http://locks.internal/admin?"+query, nil), edit...)
}

func post(h http.Handler, query string, form url.Values, edit ...func(*http.Request)) answer {
	r := httptest.NewRequest("POST", "http://locks.internal/admin?"+query, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://locks.internal")
	return send(h, r, edit...)
}

func send(h http.Handler, r *http.Request, edit ...func(*http.Request)) answer {
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return answer{w, w.Body.String()}
}

func (a answer) want(t testing.TB, code int) answer {
	t.Helper()
	if a.Code != code {
		t.Fatalf("status %d, want %d: %s", a.Code, code, a.body)
	}
	return a
}

// shown has the fields of a JSON page that the tests read.
type shown struct {
	Error, Notice, Next string
	Held, Waiting       []shownLock
	Locks               []shownLock
	Lock                *shownLock
	Keys                bool
	MayRevoke           bool `json:"may_revoke"`
	MayRelease          bool `json:"may_release"`
	Confirm             *struct{ Hold struct{ ID string } }
	Processes           []struct{ ID, Service, Host string }
}

type shownLock struct {
	Name, Digest, Key string
	Sealed            string `json:"lock"`
	Hold, Trace       string
	Holds, Waiters    []struct {
		ID      string
		Age     int64 `json:"age_ms"`
		Left    int64 `json:"left_ms"`
		Process *struct{ Host string }
		Trace   string
	}
	Run *struct{ Attempt int }
}

func (a answer) json(t testing.TB) (s shown) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%v (%s): %s", err, a.Header().Get("Content-Type"), a.body)
	}
	return s
}
