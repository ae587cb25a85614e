package latency_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
	"github.com/lockkit/lockkit/core/zkstore"
)

// place is the store of the locks in one run.
type place interface {
	// open returns the stores of one more replica, for its locks and for its stored
	// responses. Each replica has its own proxies, except with a file.
	open(t testing.TB) (locks, kept core.Store)
	// impair applies f to all proxies, or to the file.
	impair(f fault)
	// toll returns the effects of the fault.
	toll() testserver.Toll
}

// places are the stores, in the order of the table.
var places = []struct {
	name, title string
	file        bool // a file, without a network
	open        func(t testing.TB) place
}{
	{"redis", "Redis", false, func(t testing.TB) place { return &onRedis{nodes: redises.Get(t)[:1], prefix: newPrefix()} }},
	{"redlock", "Redlock of three", false, func(t testing.TB) place { return &onRedis{nodes: redises.Get(t), prefix: newPrefix()} }},
	{"zookeeper", "ZooKeeper", false, func(t testing.TB) place {
		return &onZooKeeper{addr: testserver.SharedZooKeeper(t), kept: onRedis{nodes: redises.Get(t)[:1], prefix: newPrefix()}}
	}},
	{"postgres", "PostgreSQL, pgstore", false, func(t testing.TB) place { return newOnPostgres(t) }},
	{"mariadb", "MariaDB, sqlstore", false, func(t testing.TB) place { return newOnMariaDB(t) }},
	{"sqlite", "SQLite, sqlstore", true, func(t testing.TB) place { return newOnSQLite(t) }},
}

// All runs share these servers. Each run uses its own prefix or database there.
var (
	redises = testserver.NewShared(func(t testing.TB) []*testserver.Redis {
		return []*testserver.Redis{testserver.StartRedis(t), testserver.StartRedis(t), testserver.StartRedis(t)}
	})
	postgres = testserver.NewShared(func(t testing.TB) *testserver.Postgres { return testserver.StartPostgres(t, "max_connections = 400") })
	mariaDB  = testserver.NewShared(func(t testing.TB) *testserver.MariaDB {
		return testserver.StartMariaDB(t, "max_connections = 800")
	})
)

// keep keeps the servers running until the test ends.
func keep(t testing.TB) {
	t.Helper()
	redises.Get(t)
	postgres.Get(t)
	mariaDB.Get(t)
	testserver.SharedZooKeeper(t)
}

// maxConnections is the size of the SQL databases' connection pools.
const maxConnections = 10

func newPrefix() string { return "lk2-" + strings.ToLower(rand.Text()[:12]) + ":" }

// network contains the proxies of all replicas. Its zero value is ready.
type network struct {
	mu      sync.Mutex
	proxies []*testserver.Proxy
}

func (n *network) to(t testing.TB, addr string) string {
	p := testserver.NewProxy(t, addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.proxies = append(n.proxies, p)
	return p.Addr
}

func (n *network) impair(f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.proxies {
		p.Impair(f.Impairment)
	}
}

func (n *network) toll() (sum testserver.Toll) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.proxies {
		sum = sum.Add(p.Toll())
	}
	return sum
}

// onRedis is one Redis, or a quorum of several.
type onRedis struct {
	network
	nodes  []*testserver.Redis
	prefix string
}

// open implements place. A quorum cannot store responses, so the first node stores them.
func (p *onRedis) open(t testing.TB) (locks, kept core.Store) {
	t.Helper()
	all := make([]core.Store, len(p.nodes))
	for i, node := range p.nodes {
		all[i] = openRedis(t, p.to(t, node.Addr), p.prefix)
	}
	if len(all) == 1 {
		return all[0], all[0]
	}
	s, err := redlock.New(all, redlock.WithFencing(), redlock.WithQuarantine(0))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, s)
	return s, openRedis(t, p.to(t, p.nodes[0].Addr), p.prefix+"kept:")
}

func openRedis(t testing.TB, addr, prefix string) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	s, err := redisstore.New(client, redisstore.WithPrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, s)
	return s
}

func closeAfter(t testing.TB, s interface{ Close() error }) {
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
}

// onZooKeeper is one ZooKeeper. It cannot store responses, so a Redis stores them.
type onZooKeeper struct {
	network
	addr string
	kept onRedis
}

func (p *onZooKeeper) open(t testing.TB) (locks, kept core.Store) {
	t.Helper()
	s, err := zkstore.New(testclient.ZooKeeper(t, 20*time.Second, p.to(t, p.addr)), zkstore.WithRoot("/"+strings.TrimSuffix(p.kept.prefix, ":")))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, s)
	_, kept = p.kept.open(t)
	return s, kept
}

func (p *onZooKeeper) impair(f fault) {
	p.network.impair(f)
	p.kept.impair(f)
}

func (p *onZooKeeper) toll() testserver.Toll { return p.network.toll().Add(p.kept.toll()) }

type onPostgres struct {
	network
	server *testserver.Postgres
}

func newOnPostgres(t testing.TB) *onPostgres {
	t.Helper()
	p := &onPostgres{server: postgres.Get(t).NewDatabase(t)}
	if err := pgstore.Migrate(context.Background(), testclient.Postgres(t, p.server.URL())); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *onPostgres) open(t testing.TB) (locks, kept core.Store) {
	t.Helper()
	url := p.server.URLAt(p.to(t, p.server.Addr), fmt.Sprint("pool_max_conns=", maxConnections))
	s, err := pgstore.New(testclient.Postgres(t, url))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, s)
	return s, s
}

type onMariaDB struct {
	network
	server *testserver.MariaDB
}

func newOnMariaDB(t testing.TB) *onMariaDB {
	t.Helper()
	p := &onMariaDB{server: mariaDB.Get(t).NewDatabase(t)}
	if err := sqlstore.Migrate(context.Background(), openSQL(t, "mysql", p.server.DSN()), sqlstore.MySQL); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *onMariaDB) open(t testing.TB) (locks, kept core.Store) {
	t.Helper()
	return openSQLStore(t, openSQL(t, "mysql", p.server.DSNAt(p.to(t, p.server.Addr))), sqlstore.MySQL)
}

func openSQL(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	return db
}

func openSQLStore(t testing.TB, db *sql.DB, d sqlstore.Dialect) (locks, kept core.Store) {
	t.Helper()
	s, err := sqlstore.New(db, d)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, s)
	return s, s
}

// onSQLite is a file. It has no network, and is slow while another transaction writes to
// it.
type onSQLite struct {
	dsn   string
	other *sql.DB
	stop  func()

	mu     sync.Mutex
	locked int
}

func newOnSQLite(t testing.TB) *onSQLite {
	t.Helper()
	dsn := "file:" + filepath.Join(t.TempDir(), "locks.db") + "?_txlock=immediate&_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)"
	p := &onSQLite{dsn: dsn, other: openSQL(t, "sqlite", dsn), stop: func() {}}
	if err := sqlstore.Migrate(context.Background(), p.other, sqlstore.SQLite); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.impair(fault{}) })
	return p
}

func (p *onSQLite) open(t testing.TB) (locks, kept core.Store) {
	t.Helper()
	return openSQLStore(t, openSQL(t, "sqlite", p.dsn), sqlstore.SQLite)
}

// impair implements place. A transaction locks the file for twice the fault's delay, then
// leaves it unlocked for the same time, and so on.
func (p *onSQLite) impair(f fault) {
	p.stop()
	p.stop = func() {}
	if f.Delay == 0 {
		return
	}
	quit, gone := make(chan struct{}), make(chan struct{})
	p.stop = sync.OnceFunc(func() {
		close(quit)
		<-gone
	})
	go func() {
		defer close(gone)
		for {
			d := 2 * f.lag()
			p.lock(d, quit)
			select {
			case <-quit:
				return
			case <-time.After(d):
			}
		}
	}()
}

func (p *onSQLite) lock(d time.Duration, quit <-chan struct{}) {
	tx, err := p.other.BeginTx(context.Background(), nil)
	if err != nil {
		return // the other connections write all the time
	}
	defer tx.Rollback()
	p.mu.Lock()
	p.locked++
	p.mu.Unlock()
	select {
	case <-quit:
	case <-time.After(d):
	}
}

func (p *onSQLite) toll() testserver.Toll {
	p.mu.Lock()
	defer p.mu.Unlock()
	return testserver.Toll{Delayed: p.locked}
}
