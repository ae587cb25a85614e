package redisstore_test

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/lockkit/lockkit/core/internal/offline"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/storetest"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestMain runs up to 8 tests at once, because most wait for time or for a server. More
// tests would delay each other by seconds on a busy machine.
func TestMain(m *testing.M) {
	flag.Parse()
	parallel := false
	flag.Visit(func(f *flag.Flag) { parallel = parallel || f.Name == "test.parallel" })
	if !parallel {
		_ = flag.Set("test.parallel", "8")
	}
	offline.Resolve()
	logging.Disable() // clients log every server that a test has stopped
	// A pool whose dials have failed checks once a second whether it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(offline.Dialing))
}

// newStore returns a Store that is closed before its client.
func newStore(t testing.TB, client redis.UniversalClient, opts ...redisstore.Option) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(client, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func everyKeyExpires(t testing.TB, server *testserver.Redis) {
	t.Helper()
	c := testclient.Redis(t, server.Addr)
	ctx := context.Background()
	keys := c.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		if left := c.PTTL(ctx, keys.Val()).Val(); left == -1 {
			t.Errorf("key %q has no TTL: %v", keys.Val(), c.HGetAll(ctx, keys.Val()).Val())
		}
	}
	if err := keys.Err(); err != nil {
		t.Error(err)
	}
}

func conformance(t *testing.T, server *testserver.Redis, connect func(t testing.TB) store.Store, without ...storetest.Feature) {
	t.Helper()
	t.Cleanup(func() { everyKeyExpires(t, server) })
	conformanceOf(t, connect, without...)
}

func conformanceOf(t *testing.T, connect func(t testing.TB) store.Store, without ...storetest.Feature) {
	t.Helper()
	storetest.Run(t, storetest.Harness{
		New: func(t testing.TB) func() store.Store {
			return func() store.Store { return connect(t) }
		},
		Unit:    300 * time.Millisecond, // a TTL tolerates a stall of the machine
		Without: without,
	})
}

func TestStore(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	conformance(t, server, func(t testing.TB) store.Store { return newStore(t, testclient.Redis(t, server.Addr)) }, storetest.SameToken)
}

func TestStoreWithPrefix(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	server := testserver.StartRedis(t)
	conformance(t, server, func(t testing.TB) store.Store {
		return newStore(t, testclient.Redis(t, server.Addr), redisstore.WithPrefix("my app/locks: "))
	}, storetest.SameToken)
}

// fields makes its claims unusual, so that its keys are strings of fields.
type fields struct{ *redisstore.Store }

func (h fields) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	if c.Weight == store.All {
		c.MinToken = max(c.MinToken, 2)
	}
	return h.Store.Acquire(ctx, c)
}

func TestStoreWithFields(t *testing.T) {
	tally.ProofOrMatrix(t)
	t.Parallel()
	server := testserver.StartRedis(t)
	conformance(t, server, func(t testing.TB) store.Store { return fields{newStore(t, testclient.Redis(t, server.Addr))} })
}

// crowd turns its keys into hashes from the beginning.
type crowd struct {
	*redisstore.Store
	planted *sync.Map
}

func (c crowd) plant(key string) {
	once, _ := c.planted.LoadOrStore(key, sync.OnceFunc(func() { plant(c.Store, key) }))
	once.(func())()
}

func (c crowd) Acquire(ctx context.Context, of store.Claim) (store.Grant, error) {
	c.plant(of.Key)
	return c.Store.Acquire(ctx, of)
}

func (c crowd) Release(ctx context.Context, of store.Claim) error {
	c.plant(of.Key)
	return c.Store.Release(ctx, of)
}

func TestStoreWithCrowds(t *testing.T) {
	tally.ProofOrMatrix(t)
	t.Parallel()
	server, planted := testserver.StartRedis(t), new(sync.Map)
	asks := testclient.Redis(t, server.Addr)
	t.Cleanup(func() {
		hashes := 0
		for _, key := range asks.Keys(context.Background(), "*").Val() {
			if asks.Type(context.Background(), key).Val() == "hash" {
				hashes++
			}
		}
		if hashes < 20 {
			t.Errorf("test setup: %d keys are hashes", hashes)
		}
	})
	conformance(t, server, func(t testing.TB) store.Store {
		return crowd{newStore(t, testclient.Redis(t, server.Addr)), planted}
	})
}

// TestStoreThroughProxy runs the suite with RESP2, and without context deadlines on
// sockets.
func TestStoreThroughProxy(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	server := testserver.StartRedis(t)
	proxy := testserver.NewRedisProxy(t, server.Addr)
	conformance(t, server, func(t testing.TB) store.Store {
		return newStore(t, testclient.Redis(t, proxy.Addr, func(o *redis.Options) {
			o.Protocol, o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = 2, false, 0, 0
		}))
	}, storetest.SameToken)
}

// TestStoreWithDoubledRequests sends every request twice, except acquires that wait. A
// claim describes the desired state, and a record is saved once.
func TestStoreWithDoubledRequests(t *testing.T) {
	tally.ProofOnly(t)
	t.Parallel()
	server := testserver.StartRedis(t)
	conformance(t, server, func(t testing.TB) store.Store {
		faults := new(storetest.Faults)
		faults.Hook(func(op storetest.Op, claims []store.Claim) storetest.Fault {
			// The first request can be refused and its copy granted. A waiting caller
			// finds the grant by its next request, which the suite does not send.
			return storetest.Fault{Twice: op != storetest.OpAcquire || !claims[0].Wait}
		})
		t.Cleanup(faults.Wait)
		return storetest.Faulty(newStore(t, testclient.Redis(t, server.Addr)), faults)
	}, storetest.SameToken)
}

var notPlain = []storetest.Feature{
	storetest.Shared, storetest.Permits, storetest.Reentry, storetest.Joining, storetest.Fair, storetest.Fencing,
	storetest.Tombstones, storetest.Watching, storetest.Records, storetest.Naming, storetest.Carding,
}

func TestStoreWithPlainKeys(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	conformance(t, server, func(t testing.TB) store.Store {
		return byLease{newStore(t, testclient.Redis(t, server.Addr), redisstore.WithPlainKeys())}
	}, notPlain...)
}

// byLease gives every lease its own owner. A plain key distinguishes owners only, while
// the suite uses several leases of one owner.
type byLease struct{ *redisstore.Store }

func (s byLease) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	owner := c.Owner
	c.Owner = c.Lease
	g, err := s.Store.Acquire(ctx, c)
	if err == nil {
		g.Owner = owner
	}
	return g, err
}

func (s byLease) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	own := make([]store.Claim, len(claims))
	for i, c := range claims {
		own[i] = c
		own[i].Owner = c.Lease
	}
	return s.Store.Extend(ctx, own)
}

func (s byLease) Release(ctx context.Context, c store.Claim) error {
	c.Owner = c.Lease
	return s.Store.Release(ctx, c)
}
