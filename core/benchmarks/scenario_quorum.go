package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
)

// quorum returns a scenario of locks on a majority of three or five servers, of which
// one may be silent.
func quorum(servers int, silent bool) scenario {
	number := map[int]string{3: "three", 5: "five"}[servers]
	sc := scenario{
		name: "quorum", title: fmt.Sprintf("a majority of %s servers", number),
		columns: []Column{
			{Key: "p50", Title: "p50 ms", Digits: 2, Better: Less, Ratio: true},
			{Key: "p99", Title: "p99 ms", Digits: 2, Better: Less, Ratio: true},
			{Key: "count", Title: "cycles"},
			{Key: "clientCPU", Title: "client µs"},
		},
		targets: []target{
			{who: "lockkit", key: "p50", of: "redsync", limit: 1, why: allOfAMajority},
			// redsync's keys are plain too.
			{who: "lockkit plain keys", key: "p50", of: "redsync", limit: 1, why: allOfAMajority},
		},
	}
	if servers != 3 {
		sc.name += "-" + number
	}
	if silent {
		sc.name, sc.title = sc.name+"-silent", sc.title+", one of them silent"
		sc.targets = append(sc.targets, target{who: "lockkit", key: "p99", of: "redsync", limit: 0.1})
	}
	sc.about = fmt.Sprintf("Acquire and release of free keys by one goroutine, on %s servers", number)
	if silent {
		sc.about += ", of which the last one is stopped: connections stay open and nothing answers"
	}
	sc.about += ". Milliseconds a cycle; redsync with its own time-outs, once as it is and once with WithFailFast."
	sc.run = func(b *bench, s *Section) error { return b.quorum(s, servers, silent) }
	return sc
}

// quorumContenders returns the contenders that can lock a majority of servers.
func quorumContenders(ttl time.Duration) []quorumContender {
	return []quorumContender{
		{"lockkit", Kit, func(clients []*redis.Client) (*locks, error) { return openRedlock(clients, ttl) }},
		{"lockkit plain keys", Kit, func(clients []*redis.Client) (*locks, error) {
			return openRedlock(clients, ttl, redisstore.WithPlainKeys())
		}},
		{"redsync", Peer, func(clients []*redis.Client) (*locks, error) { return openRedsyncs(clients, ttl) }},
		{"redsync fail fast", Peer, func(clients []*redis.Client) (*locks, error) {
			return openRedsyncs(clients, ttl, redsync.WithFailFast(true))
		}},
	}
}

type quorumContender struct {
	name string
	kind Kind
	open func(clients []*redis.Client) (*locks, error)
}

func openRedlock(clients []*redis.Client, ttl time.Duration, opts ...redisstore.Option) (*locks, error) {
	var nodes []core.Store
	var closers []func() error
	for _, c := range clients {
		node, err := redisstore.New(c, opts...)
		if err != nil {
			return nil, err
		}
		nodes, closers = append(nodes, node), append(closers, node.Close)
	}
	store, err := redlock.New(nodes)
	if err != nil {
		return nil, err
	}
	locker, err := core.New(store, core.WithDefaults(core.TTL(ttl)))
	if err != nil {
		return nil, err
	}
	return lockerLocks(locker, append([]func() error{store.Close}, closers...)...), nil
}

func openRedsyncs(clients []*redis.Client, ttl time.Duration, opts ...redsync.Option) (*locks, error) {
	var pools []redsyncredis.Pool
	for _, c := range clients {
		pools = append(pools, goredis.NewPool(c))
	}
	rs := redsync.New(pools...)
	opts = append(opts, redsync.WithExpiry(ttl))
	return &locks{
		try: func(ctx context.Context, key string) (lease, error) {
			m := rs.NewMutex(key, opts...)
			if err := m.TryLockContext(ctx); err != nil {
				return nil, err
			}
			return (*mutex)(m), nil
		},
		close: func() error { return nil },
	}, nil
}

// quorum measures the contenders alternately, each with its own clients of the servers.
func (b *bench) quorum(s *Section, n int, silent bool) (err error) {
	servers, stop, err := b.startServers(n)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	var stations []station
	var clients []*redis.Client
	for _, c := range quorumContenders(ttl) {
		var own []*redis.Client
		for _, s := range servers {
			own = append(own, goRedis(opening{addr: s.addr, conns: 64}))
		}
		clients = append(clients, own...)
		l, err := c.open(own)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		// The warm-up comes before one server becomes silent, because a new process
		// first contacts all servers.
		if err := l.warm(b.ctx, c.name+":warm"); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		stations = append(stations, station{contender: contender{name: c.name, kind: c.kind}, close: l.close, round: func(round int) (outcome, error) {
			return b.latencies(l, fmt.Sprintf("%s:%d", c.name, round))
		}})
	}
	if silent {
		if err := servers[n-1].cmd.Process.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
	}
	err = b.interleave(s, b.rounds, stations)
	for _, c := range clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

// startServers starts n servers. stop stops the servers that were started, even after
// an error.
func (b *bench) startServers(n int) (servers []*server, stop func() error, err error) {
	stop = func() (err error) {
		for _, s := range servers {
			err = errors.Join(err, s.stop())
		}
		return err
	}
	for range n {
		s, err := startServer(b.ctx)
		if err != nil {
			return servers, stop, err
		}
		servers = append(servers, s)
	}
	return servers, stop, nil
}

// warm acquires and releases a key, which connects to all servers.
func (l *locks) warm(ctx context.Context, key string) error {
	held, err := l.persist(ctx, key)
	if err != nil {
		return err
	}
	return held.Release(ctx)
}

// persist makes up to 10 attempts while the store is unavailable, as on a busy machine.
// Each attempt uses another key, because the state of the previous key is unknown.
func (l *locks) persist(ctx context.Context, key string) (held lease, err error) {
	for n := range 10 {
		if held, err = l.try(ctx, fmt.Sprintf("%s:%d", key, n)); !errors.Is(err, core.ErrUnavailable) {
			break
		}
	}
	return held, err
}

// latencies runs one round: consecutive cycles for the length of four windows.
func (b *bench) latencies(l *locks, key string) (o outcome, err error) {
	var took []float64
	gate, used := newGate(), usedSoFar()
	for start := time.Now(); time.Since(start) < 4*b.window || len(took) == 0; {
		begun := time.Now()
		held, err := l.persist(b.ctx, fmt.Sprintf("%s:%d", key, len(took)))
		if err != nil {
			return o, err
		}
		gate.enter()
		gate.leave()
		if err := held.Release(b.ctx); err != nil {
			return o, err
		}
		took = append(took, time.Since(begun).Seconds()*1e3)
	}
	n := float64(len(took))
	slices.Sort(took)
	o.overlaps = gate.overlaps.Load()
	o.figures = map[string]float64{
		"p50": percentile(took, 50), "p99": percentile(took, 99), "count": n,
		"clientCPU": usedSoFar().since(used).CPU / n * 1e6,
	}
	return o, nil
}
