package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/zkstore"
)

// zookeeperScenarios returns the scenarios on ZooKeeper, or none if it is not installed.
func zookeeperScenarios() []scenario {
	if !hasZookeeper() {
		return nil
	}
	return []scenario{zookeeper("zookeeper-1", 1, false), zookeeper("zookeeper-16", 16, false), zookeeper("zookeeper-hot", 16, true)}
}

// zookeeper returns a scenario that compares locks in ZooKeeper with the client
// library's lock. With hot, all goroutines want the same key.
func zookeeper(name string, goroutines int, hot bool) scenario {
	sc := scenario{
		name: name, title: fmt.Sprintf("goroutines with own keys in ZooKeeper: %d", goroutines),
		about: "Acquire and release on one server that waits for its disk. The client library's zk.Lock waits for ever and has no token, " +
			"readers or loss. Requests are those of the client, pings included.",
		columns: []Column{
			{Key: "rate", Title: "cycles/s", Better: More, Ratio: true},
			{Key: "p50", Title: "p50 ms", Digits: 2, Better: Less, Ratio: true},
			{Key: "p99", Title: "p99 ms", Digits: 2, Better: Less, Ratio: true},
			{Key: "requests", Title: "requests", Digits: 2},
			{Key: "clientCPU", Title: "client µs"},
			{Key: "allocs", Title: "allocs", Digits: 1},
		},
		targets: []target{{who: "lockkit", key: "requests", of: "zk.Lock", limit: 1}},
	}
	if hot {
		sc.title = fmt.Sprintf("goroutines that want one key in ZooKeeper: %d", goroutines)
		sc.targets[0].limit = 0.6
	}
	sc.run = func(b *bench, s *Section) error { return b.zookeeper(s, goroutines, hot) }
	return sc
}

// zookeeper measures both kinds of locks alternately, each with its own session.
func (b *bench) zookeeper(s *Section, goroutines int, hot bool) (err error) {
	server, err := startZookeeper(b.ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	var stations []station
	for _, c := range []struct {
		name string
		kind Kind
		open func(conn *zk.Conn) (*locks, error)
	}{{"lockkit", Kit, openZkstore}, {"zk.Lock", Peer, openZkLock}} {
		requests := new(atomic.Int64)
		conn, err := server.connect(func(network, addr string, timeout time.Duration) (net.Conn, error) {
			conn, err := net.DialTimeout(network, addr, timeout)
			return &zookeeperConn{conn, requests}, err
		})
		if err != nil {
			return err
		}
		defer conn.Close()
		l, err := c.open(conn)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		stations = append(stations, station{contender: contender{name: c.name, kind: c.kind}, close: l.close, round: func(int) (outcome, error) {
			return b.zookeeperRound(requests, l, goroutines, hot)
		}})
	}
	return b.interleave(s, b.rounds, stations)
}

// zookeeperConn counts the writes to a connection. The client sends each request in a
// separate write.
type zookeeperConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *zookeeperConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// zookeeperRound runs cycles for two windows, after a warm-up.
func (b *bench) zookeeperRound(requests *atomic.Int64, l *locks, goroutines int, hot bool) (o outcome, err error) {
	var mu sync.Mutex
	var took []float64
	gates := make([]gate, goroutines)
	for g := range gates {
		gates[g] = newGate()
	}
	run := func(window time.Duration) error {
		took = nil
		var wg sync.WaitGroup
		var errs []error
		start := time.Now()
		for g := range goroutines {
			wg.Go(func() {
				key, own, gate := g, []float64(nil), gates[g]
				if hot {
					key, gate = 0, gates[0]
				}
				var err error
				for n := 0; err == nil && (n == 0 || time.Since(start) < window); n++ {
					begun := time.Now()
					var held lease
					if held, err = l.acquire(b.ctx, fmt.Sprintf("own:%d", key)); err == nil {
						gate.enter()
						gate.leave()
						err = held.Release(b.ctx)
					}
					own = append(own, time.Since(begun).Seconds()*1e3)
				}
				mu.Lock()
				defer mu.Unlock()
				errs, took = append(errs, err), append(took, own...)
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	if err := run(b.window / 5); err != nil { // creates the nodes of the keys
		return o, err
	}
	before := requests.Load()
	used, start := usedSoFar(), time.Now()
	if err := run(2 * b.window); err != nil {
		return o, err
	}
	spent, seconds := usedSoFar().since(used), time.Since(start).Seconds()
	for _, g := range gates {
		o.overlaps += g.overlaps.Load()
	}
	n := float64(len(took))
	slices.Sort(took)
	o.figures = map[string]float64{
		"rate": n / seconds, "p50": percentile(took, 50), "p99": percentile(took, 99),
		"requests": float64(requests.Load()-before) / n, "clientCPU": spent.CPU / n * 1e6, "allocs": spent.Mallocs / n,
	}
	return o, nil
}

func openZkstore(conn *zk.Conn) (*locks, error) {
	store, err := zkstore.New(conn)
	if err != nil {
		return nil, err
	}
	locker, err := core.New(store, core.WithDefaults(core.TTL(ttl)))
	if err != nil {
		return nil, err
	}
	return lockerLocks(locker, store.Close), nil
}

type zkLock zk.Lock

func openZkLock(conn *zk.Conn) (*locks, error) {
	return &locks{
		acquire: func(_ context.Context, key string) (lease, error) {
			l := zk.NewLock(conn, "/zklock/"+key, zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				return nil, err
			}
			return (*zkLock)(l), nil
		},
		close: func() error { return nil },
	}, nil
}

func (l *zkLock) Release(context.Context) error { return (*zk.Lock)(l).Unlock() }
