package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// splitter is a connector that sends plain reads to another server. A transaction stays
// on the server that writes. By their documentation, ProxySQL, MaxScale and pgpool can
// do the same. No test runs these proxies.
type splitter struct {
	of            driver.Driver
	writes, reads string // DSNs
	off           *atomic.Bool
}

func (s *splitter) Driver() driver.Driver { return s.of }

func (s *splitter) Connect(context.Context) (driver.Conn, error) {
	writes, err := s.of.Open(s.writes)
	if err != nil {
		return nil, err
	}
	reads, err := s.of.Open(s.reads)
	if err != nil {
		return nil, errors.Join(err, writes.Close())
	}
	return &splitConn{traced: traced{writes.(connection)}, reads: reads.(connection), off: s.off}, nil
}

type splitConn struct {
	traced
	reads connection
	off   *atomic.Bool
	open  bool // a transaction is open
}

// sqlComment matches the comments that proxies remove before they compare a statement
// with their rules.
var sqlComment = regexp.MustCompile(`/\*.*?\*/ *`)

// isPlainRead applies the rules that the documentation of ProxySQL recommends. By these
// rules a replica answers a SELECT, unless it ends in FOR UPDATE.
func isPlainRead(text string) bool {
	text = sqlComment.ReplaceAllString(text, "")
	return strings.HasPrefix(text, "SELECT") && !strings.HasSuffix(text, "FOR UPDATE")
}

func (c *splitConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if !c.open && !c.off.Load() && isPlainRead(query) {
		return c.reads.QueryContext(ctx, query, args)
	}
	return c.of.QueryContext(ctx, query, args)
}

func (c *splitConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.of.BeginTx(ctx, opts)
	c.open = err == nil
	return &splitTx{tx, c}, err
}

func (c *splitConn) Close() error { return errors.Join(c.of.Close(), c.reads.Close()) }

type splitTx struct {
	driver.Tx
	c *splitConn
}

func (x *splitTx) Commit() error {
	x.c.open = false
	return x.Tx.Commit()
}

func (x *splitTx) Rollback() error {
	x.c.open = false
	return x.Tx.Rollback()
}

// lagging is a database whose plain reads come from a replica. freeze stops the
// replica's writes, and follow continues them. While off is set, all statements reach the
// primary.
type lagging struct {
	direct         database
	replica        func(sql string)
	reads          string // the DSN of the replica
	freeze, follow func()
	off            atomic.Bool
}

func (l *lagging) open(t testing.TB) *sql.DB {
	t.Helper()
	db := sql.OpenDB(&splitter{l.direct.open(t).Driver(), l.direct.dsn, l.reads, &l.off})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// shop returns a process with its locks behind the splitter.
func (l *lagging) shop(t testing.TB) *shop {
	t.Helper()
	s := &shop{db: l.direct.open(t), in: newStore(t, l.open(t), l.direct)}
	s.locks, s.runs = newRuns(t, s.in)
	return s
}

// onMariaDBReplica returns a database with a replica that has its tables.
func onMariaDBReplica(t *testing.T) *lagging {
	t.Helper()
	notOnMySQL(t, "CHANGE MASTER")
	primary := testserver.StartMariaDB(t, "log_bin = bin", "binlog_format = ROW", "sync_binlog = 1", "server_id = 1")
	replica := testserver.StartMariaDB(t, "server_id = 2")
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica.Exec("CHANGE MASTER TO MASTER_HOST='" + host + "', MASTER_PORT=" + port + ", MASTER_USER='root'; START SLAVE")
	in := primary.NewDatabase(t)
	l := &lagging{
		direct: database{sqlstore.MySQL, "mysql", in.DSN()}, reads: in.DSNAt(replica.Addr),
		replica: func(sql string) { replica.Exec(sql) },
		freeze:  func() { replica.Exec("STOP SLAVE SQL_THREAD") }, follow: func() { replica.Exec("START SLAVE SQL_THREAD") },
	}
	l.direct.place(t)
	l.direct.orders(t)
	name := in.Exec("CREATE TABLE migrated (n INT); SELECT DATABASE()")[0]
	testserver.Eventually(t, time.Minute, "the replica follows", func() bool {
		return replica.Exec("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='" + name + "' AND table_name='migrated'")[0] == "1"
	})
	return l
}

// onPostgresReplica returns a database with a logical replica, which accepts writes and
// so looks like the primary.
func onPostgresReplica(t *testing.T) *lagging {
	t.Helper()
	settings := []string{"wal_level = logical", "max_worker_processes = 8", "fsync = on"}
	origin, replica := testserver.StartPostgres(t, settings...), testserver.StartPostgres(t, settings...)
	l := &lagging{
		direct: database{sqlstore.PostgreSQL, "pgx", origin.URL()}, reads: replica.URL(), replica: func(sql string) { replica.Exec(sql) },
		freeze: func() { replica.Exec("ALTER SUBSCRIPTION everything DISABLE") }, follow: func() { replica.Exec("ALTER SUBSCRIPTION everything ENABLE") },
	}
	for _, d := range []database{l.direct, {l.direct.dialect, "pgx", l.reads}} {
		d.place(t)
		d.orders(t)
	}
	origin.Exec("CREATE PUBLICATION everything FOR ALL TABLES")
	replica.Exec("TRUNCATE lockkit.version")
	replica.Exec("CREATE SUBSCRIPTION everything CONNECTION '" + origin.URL() + "' PUBLICATION everything")
	id := origin.Exec("SELECT id FROM lockkit.version")
	testserver.Eventually(t, time.Minute, "the replica follows", func() bool { return slices.Equal(replica.Exec("SELECT id FROM lockkit.version"), id) })
	return l
}

// TestMariaDB_LaggingReader checks that operations have their right results if a frozen
// replica that accepts writes answers the plain reads. Check names the replica, even if
// it does not lag.
func TestMariaDB_LaggingReader(t *testing.T) {
	t.Parallel()
	l := onMariaDBReplica(t)
	behind := l.shop(t)
	s, sound := behind.in, l.direct.store(t)
	unfit(t, s, "a replica answers reads")
	l.freeze()
	unfit(t, s, "a replica answers reads")
	for name, make := range map[string]func(key string) store.Claim{
		"usual":  func(key string) store.Claim { return claim(key, long) },
		"shared": shared,
	} {
		c, other := make(name), claim(name, long)
		first := acquire(t, s, c)
		if _, err := s.Acquire(t.Context(), other); !errors.Is(err, store.ErrBusy) {
			t.Errorf("%s: acquire of a held key: got %v, want %v", name, err, store.ErrBusy)
		}
		if err := s.Extend(t.Context(), []store.Claim{c})[0].Err; err != nil {
			t.Errorf("%s: extend: got %v, want nil", name, err)
		}
		if n := holders(t, sound, name); n != 1 {
			t.Errorf("%s: got %d holds, want 1", name, n)
		}
		if err := s.Release(t.Context(), c); err != nil {
			t.Errorf("%s: release: got %v, want nil", name, err)
		}
		if n := holders(t, sound, name); n != 0 {
			t.Errorf("%s: got %d holds after the release, want none", name, n)
		}
		if err := s.Release(t.Context(), c); !errors.Is(err, store.ErrLost) {
			t.Errorf("%s: a second release: got %v, want %v", name, err, store.ErrLost)
		}
		if again := acquire(t, s, other); again.Token < first.Token+store.TokenStep {
			t.Errorf("%s: got token %d after %d", name, again.Token, first.Token)
		}
		if err := s.Revoke(t.Context(), name, store.HoldID(other.Lease), 0); err != nil {
			t.Errorf("%s: revoke: got %v, want nil", name, err)
		}
	}
	behind.do(t, "committed", 1, false)
	behind.do(t, "committed", 1, true)
	ran := 0
	for _, replayed := range []bool{false, true} {
		out, err := behind.runs.Do(t.Context(), order("answered"), func(context.Context) (once.Answer, error) {
			ran++
			return once.Answer{Value: []byte("answer")}, nil
		})
		if err != nil || string(out.Value) != "answer" || out.Replayed != replayed || ran != 1 {
			t.Errorf("got %q, replayed %v, %d runs and %v, want the answer of one run", out.Value, out.Replayed, ran, err)
		}
	}
	held := shared("held")
	acquire(t, sound, held)
	l.replica("SET GLOBAL read_only=1")
	c := claim("free", long)
	acquire(t, s, c) // a usual lock needs no read
	release(t, s, c)
	namesPrimary(t, "acquire of a held key with a read-only replica", second(s.Acquire(t.Context(), claim("held", long))))
	// The first failed read starts a probe. No server answers these reads, so they leave
	// the store's gate as the probe leaves it.
	for range 20 {
		namesPrimary(t, "acquire, shared, with a read-only replica", second(s.Acquire(t.Context(), shared("shared"))))
	}
	testserver.Eventually(t, long, "a free lock is granted after the failed reads", func() bool {
		return second(s.Acquire(t.Context(), claim("free", long))) == nil
	})
	unfit(t, s, "connect to the primary")
	release(t, sound, held)
}

// namesPrimary fails the test unless err says that a statement did not reach the primary.
func namesPrimary(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrLost) || !strings.Contains(err.Error(), "send all statements to the primary") {
		t.Errorf("%s: got %v, want an error that names the primary", what, err)
	}
}

// TestMariaDB_LaggingReaderTogether runs two processes whose plain reads come from a
// replica that stops and continues. There is one holder at a time, tokens grow, and each
// run has one effect and one answer.
func TestMariaDB_LaggingReaderTogether(t *testing.T) {
	t.Parallel()
	l := onMariaDBReplica(t)
	shops := []*shop{l.shop(t), l.shop(t)}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			l.freeze()
			select {
			case <-stop:
				l.follow()
				return
			case <-time.After(200 * time.Millisecond):
			}
			l.follow()
		}
	}()
	var holding atomic.Int32
	var last uint64 // the token of the last holder
	var ran [8]atomic.Int32
	var all sync.WaitGroup
	for g := range 4 {
		s := shops[g%2]
		all.Go(func() {
			for i := range 8 {
				lease, err := s.locks.Acquire(t.Context(), "one:1", core.TTL(long))
				if err != nil {
					t.Errorf("acquire: got %v, want a lease", err)
					continue
				}
				if n := holding.Add(1); n != 1 {
					t.Errorf("got %d holders, want 1", n)
				}
				if lease.Token() <= last {
					t.Errorf("got token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				holding.Add(-1)
				if err := lease.Release(t.Context()); err != nil {
					t.Errorf("release: got %v, want nil", err)
				}
				var out once.Outcome
				for err = core.ErrBusy; errors.Is(err, core.ErrBusy); { // another caller's run
					out, err = s.runs.Do(t.Context(), order(fmt.Sprint("run ", i)), func(context.Context) (once.Answer, error) {
						return once.Answer{Value: fmt.Appendf(nil, "run %d", ran[i].Add(1))}, nil
					})
				}
				if err != nil || string(out.Value) != "run 1" {
					t.Errorf("run %d: got %q and %v, want the answer of the first run", i, out.Value, err)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	<-stopped
	for i := range ran {
		if n := ran[i].Load(); n != 1 {
			t.Errorf("run %d: got %d runs, want 1", i, n)
		}
	}
}

// TestPostgreSQL_LaggingReader makes a frozen logical replica answer the plain reads.
// No second holder is admitted, and no hold is reported as lost. Operations that need
// the newest row are refused, and Check names the replica.
func TestPostgreSQL_LaggingReader(t *testing.T) {
	t.Parallel()
	l := onPostgresReplica(t)
	behind := l.shop(t)
	s, sound := behind.in, l.direct.store(t)
	unfit(t, s, "DROP SUBSCRIPTION")
	l.freeze()
	c := claim("usual", long)
	acquire(t, s, c)
	if err := s.Extend(t.Context(), []store.Claim{c})[0].Err; err != nil {
		t.Errorf("extend: got %v, want nil", err)
	}
	namesPrimary(t, "acquire of a held key", second(s.Acquire(t.Context(), claim("usual", long))))
	release(t, s, c)
	reader := shared("shared")
	acquire(t, s, reader)
	namesPrimary(t, "acquire beside a reader", second(s.Acquire(t.Context(), claim("shared", long))))
	namesPrimary(t, "extend", s.Extend(t.Context(), []store.Claim{reader})[0].Err)
	namesPrimary(t, "release", s.Release(t.Context(), reader))
	if n := holders(t, sound, "shared"); n != 1 {
		t.Errorf("got %d holds, want 1", n)
	}
	release(t, sound, reader)
	ran := 0
	do := func() error {
		out, err := behind.runs.Do(t.Context(), order("run"), func(context.Context) (once.Answer, error) {
			ran++
			return once.Answer{Value: []byte("answer")}, nil
		})
		if err == nil && string(out.Value) != "answer" {
			t.Errorf("got %q, want the answer", out.Value)
		}
		return err
	}
	namesPrimary(t, "a run", do())
	l.off.Store(true)
	eventually(t, do)
	if ran != 1 {
		t.Errorf("got %d runs, want 1", ran)
	}
}

// TestPostgreSQL_PromotedReplica checks a logical replica that has replaced its origin.
// The errors name its subscription, and the remedy of Check helps.
func TestPostgreSQL_PromotedReplica(t *testing.T) {
	t.Parallel()
	l := onPostgresReplica(t)
	pool, err := pgxpool.New(t.Context(), l.reads)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	stores := map[string]interface {
		core.Store
		Check(ctx context.Context) error
	}{
		"sqlstore": database{l.direct.dialect, "pgx", l.reads}.store(t),
		"pgstore":  newPgstore(t, pool, pgstore.WithoutWakeUps()),
	}
	const remedy = "ALTER SUBSCRIPTION … DISABLE, ALTER SUBSCRIPTION … SET (slot_name = NONE) and DROP SUBSCRIPTION …"
	for name, s := range stores {
		if err := s.Release(t.Context(), claim(name, long)); err == nil || errors.Is(err, store.ErrLost) || !strings.Contains(err.Error(), "DROP SUBSCRIPTION") {
			t.Errorf("%s: release: got %v, want an error that names the subscription", name, err)
		}
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%s: check: got %v, want an error with %q", name, err, remedy)
		}
	}
	for _, text := range strings.Split(strings.ReplaceAll(strings.ReplaceAll(remedy, " and ", ", "), "…", "everything"), ", ") {
		l.replica(text)
	}
	for name, s := range stores {
		if err := s.Release(t.Context(), claim(name, long)); !errors.Is(err, store.ErrLost) {
			t.Errorf("%s: release without a subscription: got %v, want %v", name, err, store.ErrLost)
		}
	}
}

// TestDelete_AnotherClock checks that Delete leaves a row if a server whose clock is
// ahead has read it as dead.
func TestDelete_AnotherClock(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, d database) {
		p, _ := d.place(t)
		c := claim("key", long)
		take(t, p, c)
		e := load(t, p, "key", false)
		ahead := e
		ahead.Now = ahead.Now.Add(time.Hour)
		if n, err := p.Delete(t.Context(), []casstore.Item{{Key: "key", Entry: ahead}}); n != 0 || err != nil {
			t.Errorf("read by a clock that is ahead: got %d rows deleted and %v, want none", n, err)
		}
		if n, err := p.Delete(t.Context(), []casstore.Item{{Key: "key", Entry: e}}); n != 1 || err != nil {
			t.Errorf("read by the same clock: got %d rows deleted and %v, want 1", n, err)
		}
	})
}
