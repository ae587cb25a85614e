// Package soak_test puts a constant load on the kit for a while, with a nemesis
// every few seconds, and looks at what builds up: goroutines, memory, open files
// and keys at the server have to be as they were when it is over, and no two
// holders of one key may ever meet.
//
// It is ten seconds long, a minute as part of make proof, and an hour with LONG=1.
package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redisstore/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // clients tell of every server that a test has ended
	goleak.VerifyTestMain(m)
}

const (
	services = 4
	callers  = 8 // of each service
	keys     = 6
	ttl      = 2 * time.Second
	// A client has these connections, and some for its subscription and for what
	// is on its way out.
	poolSize        = 10
	moreConnections = 4
	// What may be there afterwards beyond what was there before.
	moreGoroutines = 20
	moreFiles      = 20
	moreHeap       = 16 << 20
)

// length is how long the load goes on.
func length() time.Duration {
	switch {
	case os.Getenv("LONG") == "1":
		return time.Hour
	case os.Getenv(tally.File) != "", os.Getenv("LOCKKIT_REQUIRE_SERVERS") == "1":
		return time.Minute
	}
	return 10 * time.Second // beside other work
}

// service is one process, as far as the kit can tell: it has a client, a store and
// a network of its own.
type service struct {
	proxy  *redistest.Proxy
	client *redis.Client
	store  *redisstore.Store
	locker *core.Locker
	once   *once.Once
}

func newService(t *testing.T, addr string) *service {
	t.Helper()
	s := &service{proxy: redistest.NewProxy(t, addr)}
	s.client = redistest.Client(t, s.proxy.Addr, func(o *redis.Options) { o.PoolSize = poolSize })
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

// load is what the callers do and saw.
type load struct {
	t       *testing.T
	meters  [keys]meter
	mu      sync.Mutex
	results map[string]int
	seq     atomic.Int64
}

// meter knows those who rely on a key, and until when they do.
type meter struct {
	mu sync.Mutex
	in map[*core.Lease]time.Time
}

// enter counts a holder in and returns how many others rely on the key now. Who
// is late to leave has a deadline that says so.
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

// turn is one thing out of everything.
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
	case errors.Is(err, core.ErrBusy):
		l.count("busy")
	default:
		l.t.Errorf("an error of no class: %v", err)
	}
}

// hold relies on a key for a moment and looks whether somebody else does.
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

// level is what builds up if something leaks. A client keeps the connections that
// it has needed, up to the size of its pool: they are counted, and what each takes
// here, at the client and on both sides of the proxy, is not counted again.
type level struct{ goroutines, files, heap, connections int }

func measure(all []*service) level {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	files, _ := os.ReadDir("/dev/fd")
	n := 0
	for _, s := range all {
		n += s.proxy.Links()
	}
	return level{runtime.NumGoroutine() - 2*n, len(files) - 3*n, int(m.HeapAlloc), n}
}

func (l level) over(before level) bool {
	return l.goroutines > before.goroutines+moreGoroutines || l.files > before.files+moreFiles || l.heap > before.heap+moreHeap ||
		l.connections > services*(poolSize+moreConnections)
}

func TestSoak(t *testing.T) {
	redistest.Require(t)
	server := redistest.Start(t)
	all := make([]*service, services)
	for i := range all {
		all[i] = newService(t, server.Addr)
	}
	l := &load{t: t, results: map[string]int{}}
	run(l, all, 2*time.Second, nil) // clients have their connections, maps their size
	forget(all)
	before := measure(all)
	n := &nemesis{server: server, services: all, deeds: map[string]int{}}
	run(l, all, length(), n)
	forget(all)
	after := measure(all)
	for end := time.Now().Add(time.Minute); after.over(before) && time.Now().Before(end); after = measure(all) {
		time.Sleep(100 * time.Millisecond) // what is cleaned up in the background
	}
	t.Logf("before %+v, after %+v, faults %v, outcomes %v", before, after, n.deeds, l.results)
	leaks := 0
	if after.over(before) {
		leaks = 1
		t.Errorf("before %+v, after %+v: something builds up", before, after)
	}
	stuck := 0
	redistest.Eventually(t, time.Minute, "no lock is left at the server", func() bool {
		stuck = 0
		for _, key := range server.Do("KEYS", "*soak:*").([]any) {
			if life, ok := server.Do("PTTL", key).(int64); !ok || life == -1 || life > int64(10*ttl/time.Millisecond) {
				stuck++
			}
		}
		return stuck == 0
	})
	for _, s := range all {
		s.close(t)
	}
	if least := 100; l.results["granted"] < least || len(n.deeds) == 0 || l.results["unavailable"]+l.results["lost"]+l.results["busy"] == 0 {
		t.Errorf("vacuous: outcomes %v, faults %v", l.results, n.deeds)
	}
	f := tally.Facts{Part: "soak", Runs: 1, Faults: n.deeds, Outcomes: l.results, Grants: l.results["granted"], Violations: map[string]int{
		"overlaps": l.results["overlaps"], "leaks": leaks, "keys without TTL": stuck,
	}, Versions: map[string]string{"redis-server": server.Field("server", "redis_version")}}
	delete(f.Outcomes, "overlaps")
	tally.Note(t, f)
}

// run puts the load on for d, and lets it come to an end.
func run(l *load, all []*service, d time.Duration, n *nemesis) {
	var wg sync.WaitGroup
	var stop atomic.Bool
	for _, s := range all {
		for range callers {
			wg.Go(func() {
				for !stop.Load() {
					l.turn(s)
					time.Sleep(rand.N(4 * time.Millisecond)) // a constant load, not all there can be
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

// forget has the proxies drop what they remember for tests.
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

// nemesis does one bad thing after the other.
type nemesis struct {
	server   *redistest.Server
	services []*service
	deeds    map[string]int
}

// act does one thing and ends it.
func (n *nemesis) act() {
	s := n.services[rand.N(len(n.services))]
	forget(n.services) // an hour of commands would look like a leak
	d := ttl/10 + rand.N(ttl)
	deed := []string{"freeze", "cut", "sever", "lose replies", "lose requests", "flush scripts"}[rand.N(6)]
	switch deed {
	case "freeze":
		n.server.Pause()
		time.Sleep(d)
		n.server.Resume()
	case "cut":
		s.proxy.Partition()
		time.Sleep(d)
		s.proxy.Heal()
	case "sever":
		for _, s := range n.services {
			s.proxy.Sever()
		}
	case "lose replies":
		n.inject(s, redistest.CloseReply)
	case "lose requests":
		n.inject(s, redistest.CloseRequest)
	case "flush scripts":
		n.server.Do("SCRIPT", "FLUSH")
	}
	n.deeds[deed]++
}

func (n *nemesis) inject(s *service, a redistest.Action) {
	for _, script := range []string{"acquire", "extend", "release"} {
		f := s.proxy.Inject(redistest.Match{Script: script, Times: 3}, a)
		defer s.proxy.Remove(f)
	}
	time.Sleep(ttl / 10)
}
