package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// A quorum has five independent servers, of which three must agree.
const (
	nodes    = 5
	majority = 3
)

// nodeTimeout is long enough for a busy machine.
const nodeTimeout = time.Second

// quorum is five servers, and a rival that is connected to them directly.
type quorum struct {
	servers [nodes]*testserver.Redis
	asks    [nodes]*redis.Client
	rival   *core.Locker
}

func newQuorum(t *testing.T) *quorum {
	t.Helper()
	q := &quorum{}
	for i := range nodes {
		q.servers[i] = testserver.StartRedis(t)
		q.asks[i] = testclient.Redis(t, q.servers[i].Addr)
	}
	q.rival = q.locker(t, func(i int) *redis.Client { return q.asks[i] })
	for range 3 { // the servers load the scripts, and the Store learns about the servers
		lease, err := q.rival.Acquire(t.Context(), "warm-up", core.TTL(ttl))
		if err == nil {
			err = lease.Extend(t.Context(), ttl)
		}
		if err == nil {
			err = lease.Release(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return q
}

// locker returns a Locker on all five servers, which is closed after the test.
func (q *quorum) locker(t *testing.T, client func(i int) *redis.Client) *core.Locker {
	t.Helper()
	var stores []core.Store
	for i := range nodes {
		s, err := redisstore.New(client(i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		stores = append(stores, s)
	}
	// The servers are new, and none of them is restarted, so no quarantine is needed.
	store, err := redlock.New(stores, redlock.WithFencing(), redlock.WithNodeTimeout(nodeTimeout), redlock.WithQuarantine(0))
	if err != nil {
		t.Fatal(err)
	}
	l, err := core.New(store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := l.Close(ctx); err != nil && !t.Failed() {
			t.Errorf("close: %v", err)
		}
		_ = store.Close()
	})
	return l
}

// member is one trial with a quorum, in which a fault hits the message to one of the
// five servers.
type member struct {
	*quorum
	t       *testing.T
	fault   fault
	key     string
	locker  *core.Locker
	proxies [nodes]*testserver.Proxy
	at      int // the server whose message has the fault
	script  string
	skip    int
	armed   *testserver.Fault
	before  uint64 // a token from before the trial
	trial   int
}

func (q *quorum) member(t *testing.T, f fault, trial int) *member {
	t.Helper()
	m := &member{quorum: q, t: t, fault: f, key: fmt.Sprint("cell:", number.Add(1)), at: trial % nodes, trial: trial}
	for i := range nodes {
		m.proxies[i] = testserver.NewRedisProxy(t, q.servers[i].Addr)
	}
	m.locker = q.locker(t, func(i int) *redis.Client {
		return testclient.Redis(t, m.proxies[i].Addr, func(o *redis.Options) {
			if trial%2 == 1 {
				o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = false, 0, 0
			}
		})
	})
	// The first grant opens all connections, and returns a token from before the trial.
	first := m.acquire(context.Background(), m.locker)
	m.before = first.Token()
	m.release(first)
	m.eventually("nobody holds", func() bool { return m.has(0) == nodes })
	return m
}

// arm makes the fault hit a call of a script at one server, but not the next skip
// calls.
func (m *member) arm(script string, skip int) {
	m.script, m.skip = script, skip
	m.proxies[m.at].Forget()
	m.armed = m.proxies[m.at].Inject(testserver.Match{Script: script, Arg: "lk2:{" + m.key + "}", Skip: skip}, m.fault.of(m.trial))
}

func (m *member) eventually(what string, ok func() bool) {
	m.t.Helper()
	testserver.Eventually(m.t, patience, what, ok)
}

func (m *member) deliver() {
	m.t.Helper()
	m.armed.Await(m.t)
	m.armed.Deliver()
	select {
	case <-m.armed.Answered():
	case <-time.After(patience):
		m.t.Fatal("the late message was not answered")
	}
}

// with returns the number of fields with this prefix that the key has at server i.
func (m *member) with(i int, prefix string) (n int) {
	m.t.Helper()
	fields, err := testclient.Fields(context.Background(), m.asks[i], "lk2:{"+m.key+"}")
	if err != nil {
		m.t.Fatal(err)
	}
	for f := range fields {
		if strings.HasPrefix(f, prefix) {
			n++
		}
	}
	return n
}

// has returns the number of servers at which the key has n holds.
func (m *member) has(n int) (at int) {
	m.t.Helper()
	for i := range nodes {
		if m.with(i, "h:") == n {
			at++
		}
	}
	return at
}

func (m *member) wantMajority(n int) {
	m.t.Helper()
	if at := m.has(n); at < majority {
		m.t.Errorf("the key has %d holds at %d servers, want a majority", n, at)
	}
}

func (m *member) acquire(ctx context.Context, l *core.Locker) *core.Lease {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	m.t.Cleanup(cancel)
	lease, err := l.Acquire(ctx, m.key, core.TTL(ttl))
	for errors.Is(err, core.ErrUnavailable) && ctx.Err() == nil {
		lease, err = l.Acquire(ctx, m.key, core.TTL(ttl)) // busy machine
	}
	if err != nil {
		m.t.Fatalf("acquire: %v", err)
	}
	return lease
}

func (m *member) release(lease *core.Lease) {
	m.t.Helper()
	leave(m.t, lease)
}

func (m *member) wantBusy() {
	m.t.Helper()
	lease, err := m.rival.TryAcquire(context.Background(), m.key)
	if err == nil {
		m.t.Error("a rival gets the key")
		_ = lease.Release(context.Background())
	} else if !errors.Is(err, core.ErrBusy) {
		m.t.Errorf("a rival gets %v, want busy", err)
	}
}

// refusedLate delivers a claim whose lease was released, and checks that the server of
// the late message refuses the claim. The leases in still are held. If the claim
// belongs to one of them, there is nothing to refuse. This happens if a slow server
// received an earlier claim late.
func (m *member) refusedLate(still ...*core.Lease) {
	m.t.Helper()
	m.armed.Await(m.t) // a majority may have answered before this server received its request
	var claims []testserver.Request
	for _, c := range m.proxies[m.at].Requests() {
		if c.Script == "acquire" && c.Args[3] == "lk2:{"+m.key+"}" {
			claims = append(claims, c)
		}
	}
	lease := claims[m.skip].Args[5]
	for _, l := range still {
		if l.Owner() == lease {
			m.deliver()
			return
		}
	}
	m.eventually("the release is remembered", func() bool { return m.with(m.at, "d:"+lease) == 1 })
	m.deliver()
	if m.with(m.at, "h:"+lease) > 0 {
		m.t.Error("a late claim is granted at one server")
	}
}

// finish acquires the key once more as the rival, checks that its token is greater than
// the token last, and then checks the key at all five servers.
func (m *member) finish(last uint64) {
	m.t.Helper()
	if last > 0 {
		lease := m.acquire(context.Background(), m.rival)
		if lease.Token() <= last || last <= m.before {
			m.t.Errorf("tokens %d, %d, %d: they do not grow", m.before, last, lease.Token())
		}
		m.release(lease)
	}
	m.armed.Deliver()
	m.eventually("nothing is left at any server", func() bool {
		for i := range nodes {
			if m.with(i, "h:")+m.with(i, "w") > 0 {
				return false
			}
		}
		return true
	})
	if n := m.proxies[m.at].Times(m.armed); n != 1 {
		m.t.Errorf("test setup: the fault has hit %d messages, want one", n)
	}
}
