package main

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/sqlstore"
)

// stores returns a scenario of the kit in each of places.
func stores() scenario {
	return scenario{
		name: "stores", title: "one goroutine, own key, on each store",
		about: "Acquire and release of free keys, in milliseconds a cycle. All servers are on this machine: three for Redlock, one of ZooKeeper, " +
			"of PostgreSQL and of MariaDB, which wait for their disk.",
		columns: []Column{
			{Key: "p50", Title: "p50 ms", Digits: 3, Better: Less},
			{Key: "p99", Title: "p99 ms", Digits: 3, Better: Less},
			{Key: "count", Title: "cycles"},
			{Key: "clientCPU", Title: "client µs"},
		},
		run: func(b *bench, s *Section) error { return b.stores(s) },
	}
}

type place struct {
	name string
	open func(b *bench) (*locks, error) // errors: errNoZookeeper, errNoPostgres, errNoMariaDB
}

var places = []place{
	{"Redis", func(b *bench) (*locks, error) { return openKit(opening{addr: b.server.addr, conns: 8}) }},
	{"Redis, plain keys", func(b *bench) (*locks, error) {
		return openKit(opening{addr: b.server.addr, conns: 8}, redisstore.WithPlainKeys())
	}},
	{"Redlock of three", func(b *bench) (*locks, error) {
		var clients []*redis.Client
		var closers []func() error
		for range 3 {
			s, err := startServer(b.ctx)
			if err != nil {
				return nil, err
			}
			c := goRedis(opening{addr: s.addr, conns: 8})
			clients, closers = append(clients, c), append(closers, c.Close, s.stop)
		}
		l, err := openRedlock(clients, ttl)
		return l.and(closers...), err
	}},
	{"ZooKeeper", func(b *bench) (*locks, error) {
		s, err := startZookeeper(b.ctx)
		if err != nil {
			return nil, err
		}
		conn, err := s.connect(net.DialTimeout)
		if err != nil {
			return nil, err
		}
		l, err := openZkstore(conn)
		return l.and(func() error { conn.Close(); return s.stop() }), err
	}},
	{"PostgreSQL", func(b *bench) (*locks, error) {
		s, err := startPostgres(b.ctx)
		if err != nil {
			return nil, err
		}
		pool, err := pgxpool.New(b.ctx, s.url)
		if err != nil {
			return nil, err
		}
		l, err := openPgstore(pool)
		return l.and(func() error { pool.Close(); return s.stop() }), err
	}},
	{"MariaDB", func(b *bench) (*locks, error) {
		s, err := startMariaDB(b.ctx)
		if err != nil {
			return nil, err
		}
		pool, err := s.open(mariaFirst, 8, new(atomic.Int64))
		if err != nil {
			return nil, err
		}
		l, err := openSQLStore(sqlstore.MySQL)(b.ctx, pool)
		return l.and(pool.Close, s.stop), err
	}},
}

// and adds the functions in more to l.close, and returns l.
func (l *locks) and(more ...func() error) *locks {
	if l == nil {
		return nil
	}
	first := l.close
	l.close = func() error {
		err := first()
		for _, f := range more {
			err = errors.Join(err, f())
		}
		return err
	}
	return l
}

func (b *bench) stores(s *Section) error {
	return b.everywhere(s, b.latencies)
}

// everywhere runs rounds with the kit in each of places, except places whose servers
// are not installed. key is different in each round.
func (b *bench) everywhere(s *Section, round func(l *locks, key string) (outcome, error)) error {
	var stations []station
	for _, p := range places {
		l, err := p.open(b)
		if errors.Is(err, errNoZookeeper) || errors.Is(err, errNoPostgres) || errors.Is(err, errNoMariaDB) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		stations = append(stations, station{contender: contender{name: p.name, kind: Kit}, close: l.close, round: func(n int) (outcome, error) {
			return round(l, fmt.Sprintf("%s:%s:%d", s.Name, p.name, n))
		}})
	}
	return b.interleave(s, b.rounds, stations)
}
