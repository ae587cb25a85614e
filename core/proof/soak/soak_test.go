// Package soak_test puts a constant load on the kit. Every few seconds a nemesis
// disturbs the server or a connection. At the end the numbers of goroutines and open
// files, and the memory, must be about as before the load. Each key that is left at the
// server must expire soon, or within about a day if it has the record of an unfinished
// run. Two exclusive holders of one key must never overlap.
//
// The load lasts for ten seconds, for a minute as part of make proof or with
// LOCKKIT_REQUIRE_SERVERS=1, for an hour with LONG=1, or for the time given by -length.
package soak_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/internal/offline"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestMain(m *testing.M) {
	if !tally.Wanted() {
		return
	}
	logging.Disable()                              // clients log each stopped server
	slog.SetDefault(slog.New(slog.DiscardHandler)) // and lockers log each loss
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(offline.Dialing))
}

const (
	services = 4
	callers  = 8 // per service
	keys     = 6
	ttl      = 2 * time.Second
	// poolSize limits the connections of a client. moreConnections allows for its
	// subscription and for connections that are being closed.
	poolSize        = 10
	moreConnections = 4
)

var lengthFlag = flag.Duration("length", 0, "how long the load goes on")

func length() time.Duration {
	switch {
	case *lengthFlag > 0:
		return *lengthFlag
	case os.Getenv("LONG") == "1":
		return time.Hour
	case os.Getenv(tally.File) != "", os.Getenv("LOCKKIT_REQUIRE_SERVERS") == "1":
		return time.Minute
	}
	return 10 * time.Second // short, in addition to other tests
}

// service stands for one process: it has its own client, store and network.
type service struct {
	proxy  *testserver.Proxy
	client *redis.Client
	store  *redisstore.Store
	locker *core.Locker
	once   *once.Once
}

func newService(t *testing.T, addr string) *service {
	t.Helper()
	s := &service{proxy: testserver.NewRedisProxy(t, addr)}
	s.client = testclient.Redis(t, s.proxy.Addr, func(o *redis.Options) { o.PoolSize = poolSize })
	var err error
	if s.store, err = redisstore.New(s.client); err != nil {
		t.Fatal(err)
	}
	if s.locker, err = core.New(s.store, core.WithDefaults(core.TTL(ttl))); err != nil {
		t.Fatal(err)
	}
	if s.once, err = once.New(s.locker, once.Retain(ttl)); err != nil {
		t.Fatal(err)
	}
	return s
}

// load contains the state and the results of the callers' work.
type load struct {
	t       *testing.T
	meters  [keys]meter
	mu      sync.Mutex
	results map[string]int
	seq     atomic.Int64
}

// meter records the holders that rely on a key, and the times until which they do.
type meter struct {
	mu sync.Mutex
	in map[*core.Lease]time.Time
}

// enter adds a holder and returns the number of other holders that rely on the key now.
// Holders whose deadline has passed are not counted.
func (m *meter) enter(lease *core.Lease) (others int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.in == nil {
		m.in = make(map[*core.Lease]time.Time)
	}
	for _, until := range m.in {
		if until.After(now) {
			others++
		}
	}
	m.in[lease] = lease.Deadline()
	if !m.in[lease].After(now) {
		return 0
	}
	return others
}

func (m *meter) leave(lease *core.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.in, lease)
}

func (l *load) count(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.results[what]++
}

func (l *load) turn(s *service) {
	ctx, cancel := context.WithTimeout(context.Background(), ttl)
	defer cancel()
	n := rand.N(keys)
	key := fmt.Sprintf("soak:%d", n)
	opts := []core.AcquireOption{core.Wait(rand.N(ttl / 4))}
	var err error
	switch rand.N(8) {
	case 0:
		err = s.locker.Do(ctx, "shared:"+key, func(context.Context) error { return nil }, append(opts, core.Shared())...)
	case 1:
		err = s.locker.Do(ctx, "permits:"+key, func(context.Context) error { return nil }, append(opts, core.Permits(1, 3))...)
	case 2:
		call := once.Call{Name: "soak", Scope: "s", Key: fmt.Sprint(l.seq.Add(1) / 4)}
		_, err = s.once.Do(ctx, call, func(context.Context) (once.Answer, error) { return once.Answer{Value: []byte(call.Key)}, nil })
	case 3:
		opts = append(opts, core.Fair())
		fallthrough
	default:
		err = l.hold(ctx, s, n, key, opts)
	}
	switch {
	case err == nil:
		l.count("granted")
	case errors.Is(err, core.ErrLost):
		l.count("lost")
	case errors.Is(err, core.ErrUnavailable):
		l.count("unavailable")
	case errors.Is(err, core.ErrBusy), errors.Is(err, context.DeadlineExceeded):
		l.count("busy")
	default:
		l.t.Errorf("an error of no class: %v", err)
	}
}

// hold relies on a key for a moment, and checks that no other holder does.
func (l *load) hold(ctx context.Context, s *service, n int, key string, opts []core.AcquireOption) error {
	lease, err := s.locker.Acquire(ctx, key, opts...)
	if err != nil {
		return err
	}
	if others := l.meters[n].enter(lease); others > 0 {
		l.count("overlaps")
		l.t.Errorf("%s has %d holders", key, others+1)
	}
	time.Sleep(rand.N(time.Millisecond))
	l.meters[n].leave(lease)
	if rand.N(3) == 0 {
		if inner, err := s.locker.Acquire(lease.Context(), key); err == nil {
			defer inner.Release(ctx)
		}
	}
	if rand.N(200) == 0 {
		time.Sleep(ttl) // long enough to be extended
	}
	return lease.Release(ctx)
}

func TestSoak(t *testing.T) {
	testserver.RequireRedis(t)
	server := testserver.StartRedis(t)
	all := make([]*service, services)
	for i := range all {
		all[i] = newService(t, server.Addr)
	}
	l := &load{t: t, results: map[string]int{}}
	run(l, all, 2*time.Second, nil) // fills the clients' pools and the maps
	forget(all)
	before := measure(all)
	n := &nemesis{server: server, services: all, deeds: map[string]int{}}
	run(l, all, length(), n)
	forget(all)
	after := measure(all)
	for end := time.Now().Add(time.Minute); after.over(before) && time.Now().Before(end); after = measure(all) {
		time.Sleep(100 * time.Millisecond) // for background clean-ups
	}
	t.Logf("before %+v, after %+v, faults %v, outcomes %v", before, after, n.deeds, l.results)
	leaks := 0
	if after.over(before) {
		leaks = 1
		t.Errorf("before %+v, after %+v: something builds up", before, after)
	}
	stuck := 0
	testserver.Eventually(t, time.Minute, "no lock is left at the server", func() bool {
		stuck = 0
		for _, key := range server.Do("KEYS", "*soak:*").([]any) {
			most := 10 * ttl
			if value, _ := server.Do("GET", key).(string); strings.HasPrefix(value, "f\tr ") {
				most = 25 * time.Hour // an unfinished run is remembered for a day
			}
			if life, ok := server.Do("PTTL", key).(int64); !ok || life == -1 || life > most.Milliseconds() {
				stuck++
			}
		}
		return stuck == 0
	})
	for _, s := range all {
		s.close(t)
	}
	if least := 100; l.results["granted"] < least || len(n.deeds) == 0 || l.results["unavailable"]+l.results["lost"]+l.results["busy"] == 0 {
		t.Errorf("test setup: outcomes %v, faults %v", l.results, n.deeds)
	}
	f := tally.Facts{Part: "soak", Runs: 1, Faults: n.deeds, Outcomes: l.results, Grants: l.results["granted"], Violations: map[string]int{
		"overlaps": l.results["overlaps"], "leaks": leaks, "keys without TTL": stuck,
	}, Versions: map[string]string{"redis-server": server.Field("server", "redis_version")}}
	delete(f.Outcomes, "overlaps")
	tally.Note(t, f)
}

func run(l *load, all []*service, d time.Duration, n *nemesis) {
	var wg sync.WaitGroup
	var stop atomic.Bool
	for _, s := range all {
		for range callers {
			wg.Go(func() {
				for !stop.Load() {
					l.turn(s)
					time.Sleep(rand.N(4 * time.Millisecond)) // a constant load, not the maximum
				}
			})
		}
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		if n == nil {
			time.Sleep(d)
			continue
		}
		n.act()
		time.Sleep(min(time.Until(end), ttl+rand.N(min(8*time.Second, d/5))))
	}
	stop.Store(true)
	wg.Wait()
}

// forget deletes the messages that the proxies record for tests.
func forget(all []*service) {
	for _, s := range all {
		s.proxy.Forget()
	}
}

func (s *service) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := s.locker.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := s.store.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
