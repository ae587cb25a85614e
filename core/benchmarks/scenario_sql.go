package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/sqlstore"
)

// sqlScenarios returns the scenario of SQL databases, or none if no database is
// installed.
func sqlScenarios() []scenario {
	if !hasMariaDB() && initdb() == "" {
		return nil
	}
	return []scenario{inSQL()}
}

// sqlConns is the number of connections of each pool, and the maximum number of
// goroutines of a round.
const sqlConns = 16

// inSQL returns a scenario that compares free locks in SQL databases with locks by hand.
func inSQL() scenario {
	return scenario{
		name: "sql", title: "1 and 16 goroutines with own keys in SQL databases",
		about: "Acquire and release of free keys. Each contender has its own database on the same server and a pool of 16 connections. What is " +
			"written has one durability for all: a grant waits for the disk, and a release only in MariaDB. GET_LOCK and pg_try_advisory_lock, " +
			"on a connection for each lock, write nothing and end with the connection: they have no TTL, token, notice of loss, permits or " +
			"answers. A lease row is an insert or an update of an expired row, and an update at the release: it has a TTL, but no token, " +
			"extension, notice of loss, waiters, readers, permits or answers. Round trips are what is written to a connection.",
		columns: []Column{
			{Key: "rate1", Title: "1: cycles/s", Better: More},
			{Key: "p50-1", Title: "p50 ms", Digits: 2, Better: Less},
			{Key: "rate16", Title: "16: cycles/s", Better: More},
			{Key: "p50-16", Title: "p50 ms", Digits: 2, Better: Less},
			{Key: "trips", Title: "round trips", Digits: 2},
			{Key: "clientCPU", Title: "client µs"},
		},
		run: func(b *bench, s *Section) error { return b.sql(s) },
	}
}

type sqlServer struct {
	name       string
	first      string // a database that a new server has
	version    string // the query that returns the server's version
	open       func(database string, writes *atomic.Int64) (*sql.DB, error)
	stop       func() error
	contenders []sqlContender
}

type sqlContender struct {
	name string
	kind Kind
	open func(ctx context.Context, database string, writes *atomic.Int64) (*locks, error)
}

// sqlOnMariaDB starts MariaDB. It fails with errNoMariaDB if MariaDB is not installed.
func sqlOnMariaDB(ctx context.Context) (*sqlServer, error) {
	server, err := startMariaDB(ctx)
	if err != nil {
		return nil, err
	}
	s := &sqlServer{name: "MariaDB", first: mariaFirst, version: "SELECT version()", stop: server.stop}
	s.open = func(database string, writes *atomic.Int64) (*sql.DB, error) {
		return server.open(database, sqlConns, writes)
	}
	s.contenders = []sqlContender{
		{"lockkit sqlstore", Kit, s.with(openSQLStore(sqlstore.MySQL))},
		{"GET_LOCK by hand", Bare, s.with(openGetLock)},
		{"lease row by hand", Bare, s.with(openLeaseRow(leaseRowMariaDB))},
	}
	return s, nil
}

// sqlOnPostgres starts PostgreSQL. It fails with errNoPostgres if PostgreSQL is not
// installed.
func sqlOnPostgres(ctx context.Context) (*sqlServer, error) {
	server, err := startPostgres(ctx)
	if err != nil {
		return nil, err
	}
	s := &sqlServer{name: "PostgreSQL", first: "postgres", version: "SHOW server_version", stop: server.stop}
	s.open = func(database string, writes *atomic.Int64) (*sql.DB, error) {
		return server.openSQL(database, sqlConns, writes)
	}
	s.contenders = []sqlContender{
		{"lockkit pgstore", Kit, server.with(openPgstore)},
		{"lockkit sqlstore", Kit, s.with(openSQLStore(sqlstore.PostgreSQL))},
		{advisory + " by hand", Bare, server.with(openAdvisory)},
		{"lease row by hand", Bare, s.with(openLeaseRow(leaseRowPostgres))},
	}
	return s, nil
}

// with makes the locks close the pool that open received.
func (s *sqlServer) with(open func(ctx context.Context, db *sql.DB) (*locks, error)) func(context.Context, string, *atomic.Int64) (*locks, error) {
	return func(ctx context.Context, database string, writes *atomic.Int64) (*locks, error) {
		db, err := s.open(database, writes)
		if err != nil {
			return nil, err
		}
		l, err := open(ctx, db)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return l.and(db.Close), nil
	}
}

// with makes the locks close the pool that open received.
func (s *postgresServer) with(open func(pool *pgxpool.Pool) (*locks, error)) func(context.Context, string, *atomic.Int64) (*locks, error) {
	return func(ctx context.Context, database string, writes *atomic.Int64) (*locks, error) {
		pool, err := s.open(ctx, database, sqlConns, writes)
		if err != nil {
			return nil, err
		}
		l, err := open(pool)
		if err != nil {
			pool.Close()
			return nil, err
		}
		return l.and(func() error { pool.Close(); return nil }), nil
	}
}

// sql measures all contenders of MariaDB and PostgreSQL alternately.
func (b *bench) sql(s *Section) (err error) {
	var stations []station
	for _, start := range []func(ctx context.Context) (*sqlServer, error){sqlOnMariaDB, sqlOnPostgres} {
		server, startErr := start(b.ctx)
		if errors.Is(startErr, errNoMariaDB) || errors.Is(startErr, errNoPostgres) {
			continue
		}
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, server.stop()) }()
		names, err := b.prepare(server)
		if err != nil {
			return fmt.Errorf("%s: %w", server.name, err)
		}
		for i, c := range server.contenders {
			writes := new(atomic.Int64)
			name := server.name + ": " + c.name
			l, err := c.open(b.ctx, names[i], writes)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			stations = append(stations, station{contender: contender{name: name, kind: c.kind}, close: l.close, round: func(int) (outcome, error) {
				return b.sqlRound(writes, l)
			}})
		}
	}
	return b.interleave(s, b.rounds, stations)
}

// prepare creates a database for each contender of server, and returns the databases'
// names. It adds the server's version to the report.
func (b *bench) prepare(server *sqlServer) (databases []string, err error) {
	db, err := server.open(server.first, new(atomic.Int64))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var version string
	if err := db.QueryRowContext(b.ctx, server.version).Scan(&version); err != nil {
		return nil, err
	}
	version, _, _ = strings.Cut(version, " ")
	version, _, _ = strings.Cut(version, "-")
	b.report.Versions[server.name] = version
	for i := range server.contenders {
		databases = append(databases, fmt.Sprint("bench", i))
		if _, err := db.ExecContext(b.ctx, "CREATE DATABASE "+databases[i]); err != nil {
			return nil, err
		}
	}
	return databases, nil
}

// sqlRound runs cycles in one goroutine, and then in sqlConns goroutines.
func (b *bench) sqlRound(writes *atomic.Int64, l *locks) (outcome, error) {
	one, err := b.freeRound(writes, l, 1)
	if err != nil {
		return outcome{}, err
	}
	many, err := b.freeRound(writes, l, sqlConns)
	return outcome{figures: map[string]float64{
		"rate1": one.figures["rate"], "p50-1": one.figures["p50"], "rate16": many.figures["rate"], "p50-16": many.figures["p50"],
		"trips": one.figures["trips"], "clientCPU": one.figures["clientCPU"],
	}}, err
}

func openSQLStore(d sqlstore.Dialect) func(ctx context.Context, db *sql.DB) (*locks, error) {
	return func(ctx context.Context, db *sql.DB) (*locks, error) {
		if err := sqlstore.Migrate(ctx, db, d); err != nil {
			return nil, err
		}
		store, err := sqlstore.New(db, d)
		if err != nil {
			return nil, err
		}
		locker, err := core.New(store, core.WithDefaults(core.TTL(ttl)))
		if err != nil {
			return nil, errors.Join(err, store.Close())
		}
		return lockerLocks(locker, store.Close), nil
	}
}

// sessionLock is a lock of a session, with a connection that only this lock uses.
type sessionLock struct {
	conn *sql.Conn
	key  string
}

func openGetLock(_ context.Context, db *sql.DB) (*locks, error) {
	return &locks{
		try: func(ctx context.Context, key string) (lease, error) {
			conn, err := db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			l := &sessionLock{conn, key}
			if err := l.ask(ctx, "SELECT GET_LOCK(?, 0)"); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			return l, nil
		},
		close: func() error { return nil },
	}, nil
}

// ask runs a query of the key, which answers 1 if it succeeds.
func (l *sessionLock) ask(ctx context.Context, query string) error {
	var ok sql.NullBool
	if err := l.conn.QueryRowContext(ctx, query, l.key).Scan(&ok); err != nil {
		return err
	}
	if !ok.Bool {
		return fmt.Errorf("%s: refused", query)
	}
	return nil
}

func (l *sessionLock) Release(ctx context.Context) error {
	return errors.Join(l.ask(ctx, "SELECT RELEASE_LOCK(?)"), l.conn.Close())
}

// leaseRow has the statements of a lock that is a row with an owner and a time. The
// parameters of acquire are a key and an owner, and the parameters of release are an
// owner and a key. Each statement affects a row if it succeeds. In PostgreSQL, release
// does not wait for the disk, like the kit's release.
type leaseRow struct{ table, acquire, release string }

var (
	leaseRowMariaDB = leaseRow{
		table: "CREATE TABLE leases (name VARCHAR(255) PRIMARY KEY, owner VARCHAR(255) NOT NULL, expires DATETIME(6) NOT NULL) ENGINE=InnoDB",
		acquire: "INSERT INTO leases VALUES (?, ?, NOW(6) + INTERVAL 30 SECOND) ON DUPLICATE KEY UPDATE " +
			"owner = IF(expires < NOW(6), VALUES(owner), owner), expires = IF(owner = VALUES(owner), VALUES(expires), expires)",
		release: "UPDATE leases SET expires = '2000-01-01' WHERE owner = ? AND name = ?",
	}
	leaseRowPostgres = leaseRow{
		table: "CREATE TABLE leases (name text PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL)",
		acquire: "INSERT INTO leases VALUES ($1, $2, now() + interval '30 seconds') ON CONFLICT (name) DO UPDATE " +
			"SET owner = excluded.owner, expires = excluded.expires WHERE leases.expires < now()",
		release: "UPDATE leases SET expires = '2000-01-01' FROM (SELECT set_config('synchronous_commit', 'off', true) AS commits) c " +
			"WHERE c.commits = 'off' AND owner = $1 AND name = $2",
	}
)

// ownedRow is a lease of a leaseRow.
type ownedRow struct {
	db         *sql.DB
	release    string
	owner, key string
}

func openLeaseRow(row leaseRow) func(ctx context.Context, db *sql.DB) (*locks, error) {
	return func(ctx context.Context, db *sql.DB) (*locks, error) {
		if _, err := db.ExecContext(ctx, row.table); err != nil {
			return nil, err
		}
		return &locks{
			try: func(ctx context.Context, key string) (lease, error) {
				l := &ownedRow{db, row.release, rand.Text(), key}
				if err := affects(ctx, db, row.acquire, key, l.owner); err != nil {
					return nil, err
				}
				return l, nil
			},
			close: func() error { return nil },
		}, nil
	}
}

func (l *ownedRow) Release(ctx context.Context) error {
	return affects(ctx, l.db, l.release, l.owner, l.key)
}

// affects runs a statement, and fails if it affects no row.
func affects(ctx context.Context, db *sql.DB, statement string, args ...any) error {
	r, err := db.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errors.New("no row is affected"))
	}
	return nil
}
