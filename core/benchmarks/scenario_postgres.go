package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/pgstore"
)

// postgresScenarios returns the scenarios on PostgreSQL, or none if it is not installed.
func postgresScenarios() []scenario {
	if initdb() == "" {
		return nil
	}
	return []scenario{postgres(1), postgres(16)}
}

// postgres returns a scenario that compares free locks in PostgreSQL with session-level
// advisory locks.
func postgres(goroutines int) scenario {
	sc := scenario{
		name: fmt.Sprintf("postgres-%d", goroutines), title: fmt.Sprintf("goroutines with own keys in PostgreSQL: %d", goroutines),
		about: "Acquire and release of free keys. An advisory lock is a try and an unlock on one connection of the pool: nothing is " +
			"written, and it ends with the connection; it has no TTL, token, readers, permits, queue or answers. Round trips are what " +
			"is written to a connection. The server waits for its disk.",
		columns: []Column{
			{Key: "rate", Title: "cycles/s", Better: More, Ratio: true},
			{Key: "p50", Title: "p50 ms", Digits: 2, Better: Less, Ratio: true},
			{Key: "p99", Title: "p99 ms", Digits: 2, Better: Less, Ratio: true},
			{Key: "trips", Title: "round trips", Digits: 2},
			{Key: "clientCPU", Title: "client µs"},
			{Key: "allocs", Title: "allocs", Digits: 1},
		},
		targets: []target{{who: "lockkit", key: "trips", limit: 2}},
	}
	sc.run = func(b *bench, s *Section) error { return b.postgres(s, goroutines) }
	return sc
}

const advisory = "advisory lock"

// postgres measures both kinds of locks alternately, each with its own pool.
func (b *bench) postgres(s *Section, goroutines int) (err error) {
	server, err := startPostgres(b.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	var stations []station
	for _, c := range []struct {
		name string
		kind Kind
		open func(pool *pgxpool.Pool) (*locks, error)
	}{{"lockkit", Kit, openPgstore}, {advisory, Bare, openAdvisory}} {
		writes := new(atomic.Int64)
		pool, err := server.open(b.ctx, "postgres", goroutines, writes)
		if err != nil {
			return err
		}
		defer pool.Close()
		l, err := c.open(pool)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		stations = append(stations, station{contender: contender{name: c.name, kind: c.kind}, close: l.close, round: func(round int) (outcome, error) {
			return b.freeRound(writes, l, goroutines)
		}})
	}
	return b.interleave(s, b.rounds, stations)
}

// freeRound runs cycles for two windows after a warm-up, with one key per goroutine.
func (b *bench) freeRound(writes *atomic.Int64, l *locks, goroutines int) (o outcome, err error) {
	cycle := func(g int) error {
		held, err := l.try(b.ctx, fmt.Sprintf("own:%d", g))
		if err != nil {
			return err
		}
		return held.Release(b.ctx)
	}
	var mu sync.Mutex
	var took []float64
	run := func(window time.Duration, count bool) error {
		var wg sync.WaitGroup
		var errs []error
		start := time.Now()
		for g := range goroutines {
			wg.Go(func() {
				var own []float64
				var err error
				for n := 0; err == nil && (n == 0 || time.Since(start) < window); n++ {
					begun := time.Now()
					err = cycle(g)
					own = append(own, time.Since(begun).Seconds()*1e3)
				}
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
				if count {
					took = append(took, own...)
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	if err := run(b.window/5, false); err != nil { // opens connections and prepares statements
		return o, err
	}
	before := writes.Load()
	used, start := usedSoFar(), time.Now()
	if err := run(2*b.window, true); err != nil {
		return o, err
	}
	spent, seconds := usedSoFar().since(used), time.Since(start).Seconds()
	n := float64(len(took))
	slices.Sort(took)
	o.figures = map[string]float64{
		"rate": n / seconds, "p50": percentile(took, 50), "p99": percentile(took, 99),
		"trips": float64(writes.Load()-before) / n, "clientCPU": spent.CPU / n * 1e6, "allocs": spent.Mallocs / n,
	}
	return o, nil
}

// countingConn counts the writes to a connection.
type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

func openPgstore(pool *pgxpool.Pool) (*locks, error) {
	if err := pgstore.Migrate(context.Background(), pool); err != nil {
		return nil, err
	}
	store, err := pgstore.New(pool)
	if err != nil {
		return nil, err
	}
	locker, err := core.New(store, core.WithDefaults(core.TTL(ttl)))
	if err != nil {
		return nil, err
	}
	return lockerLocks(locker, store.Close), nil
}

// advisoryLock is an advisory lock, with a session that only this lock uses.
type advisoryLock struct {
	conn *pgxpool.Conn
	key  int64
}

func openAdvisory(pool *pgxpool.Pool) (*locks, error) {
	return &locks{
		try: func(ctx context.Context, key string) (lease, error) {
			h := fnv.New64a()
			h.Write([]byte(key))
			conn, err := pool.Acquire(ctx)
			if err != nil {
				return nil, err
			}
			l := &advisoryLock{conn, int64(h.Sum64())}
			var got bool
			if err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", l.key).Scan(&got); err == nil && !got {
				err = errors.New("busy")
			}
			if err != nil {
				conn.Release()
				return nil, err
			}
			return l, nil
		},
		close: func() error { return nil },
	}, nil
}

func (l *advisoryLock) Release(ctx context.Context) error {
	defer l.conn.Release()
	_, err := l.conn.Exec(ctx, "SELECT pg_advisory_unlock($1)", l.key)
	return err
}
