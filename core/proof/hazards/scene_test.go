package hazards_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// ways are two kinds of client options that a service may use.
var ways = map[string]func(*redis.Options){
	"careful": func(*redis.Options) {},
	"default": func(o *redis.Options) { o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = false, 0, 0 },
}

// newLocker returns the locker of a service that reaches its server at addr. After the
// test, the locker is closed and its holds are released.
func newLocker(t *testing.T, addr string, opts ...core.Option) *core.Locker {
	t.Helper()
	return lockerOf(t, testclient.Redis(t, addr), nil, opts...)
}

// lockerOf returns a locker on client, with options of the store. The locker is closed
// like the locker of newLocker.
func lockerOf(t *testing.T, client redis.UniversalClient, storeOpts []redisstore.Option, opts ...core.Option) *core.Locker {
	t.Helper()
	store, err := redisstore.New(client, storeOpts...)
	if err != nil {
		t.Fatal(err)
	}
	l, err := core.New(store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = l.Close(ctx)
		ctx, cancel = context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = l.Close(ctx) // including background releases
		_ = store.Close()
	})
	return l
}

func acquire(t *testing.T, l *core.Locker, key string, opts ...core.AcquireOption) *core.Lease {
	t.Helper()
	return acquireUnder(t, context.Background(), l, key, opts...)
}

func acquireUnder(t *testing.T, ctx context.Context, l *core.Locker, key string, opts ...core.AcquireOption) *core.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	lease, err := l.Acquire(ctx, key, opts...)
	for errors.Is(err, core.ErrUnavailable) && ctx.Err() == nil {
		lease, err = l.Acquire(ctx, key, opts...) // a busy machine can be too slow for a short TTL
	}
	// The lease's context must not be canceled before the lease ends.
	t.Cleanup(cancel)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return lease
}

func release(t *testing.T, lease *core.Lease) {
	t.Helper()
	if err := lease.Release(context.Background()); err != nil {
		t.Errorf("release: %v", err)
	}
}

func wantErr(t *testing.T, what string, err error, all ...error) {
	t.Helper()
	for _, want := range all {
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", what, err, want)
		}
	}
}

// ended waits until the lease's context is done, and returns the time.
func ended(t *testing.T, lease *core.Lease) int64 {
	t.Helper()
	select {
	case <-lease.Context().Done():
		return mono()
	case <-time.After(patience):
		t.Fatalf("the lease did not end within %v", patience)
		return 0
	}
}

func wantLost(t *testing.T, lease *core.Lease) {
	t.Helper()
	wantErr(t, "the cause of the context's end", context.Cause(lease.Context()), core.ErrLost)
}

func wantHeld(t *testing.T, lease *core.Lease) {
	t.Helper()
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease is not held: %v", context.Cause(lease.Context()))
	}
}

// stored returns the name of the lock's key in Redis.
func stored(key string) string { return "lk2:{" + key + "}" }

// inspector reads the server's state directly.
type inspector struct {
	t *testing.T
	*redis.Client
}

func inspect(t *testing.T, server *testserver.Redis) inspector {
	return inspector{t, testclient.Redis(t, server.Addr)}
}

func (i inspector) fields(key string) map[string]string {
	i.t.Helper()
	m, err := testclient.Fields(context.Background(), i, stored(key))
	if err != nil {
		i.t.Fatal(err)
	}
	return m
}

// holds returns the number of holds of a key on the server, including expired holds.
func (i inspector) holds(key string) int {
	i.t.Helper()
	n := 0
	for field := range i.fields(key) {
		if strings.HasPrefix(field, "h:") || strings.HasPrefix(field, "k:") {
			n++
		}
	}
	return n
}

func (i inspector) waiters(key string) int {
	i.t.Helper()
	return strings.Count(strings.TrimSpace(i.fields(key)["w"]), "\n") + min(1, len(strings.TrimSpace(i.fields(key)["w"])))
}

// hold returns the name of the only hold of a key.
func (i inspector) hold(key string) string {
	i.t.Helper()
	var all []string
	for field := range i.fields(key) {
		if strings.HasPrefix(field, "h:") {
			all = append(all, field)
		}
	}
	if len(all) != 1 {
		i.t.Fatalf("the key has the holds %q, want one", all)
	}
	return all[0]
}

// expiry returns a time before which this hold of the key cannot expire, or 0 if the
// hold does not exist.
func (i inspector) expiry(key, hold string) int64 {
	i.t.Helper()
	from, _ := i.expires(key, hold)
	return from
}

// expires returns two times between which this hold of the key expires, or 0 if the hold
// does not exist. Their difference is at most the duration of the shortest request for
// the server's time.
func (i inspector) expires(key, hold string) (from, to int64) {
	i.t.Helper()
	least, most := int64(math.MinInt64), int64(math.MaxInt64) // from the server's clock to mono
	for n := 0; n < 5 && (n == 0 || most-least > int64(10*time.Millisecond)); n++ {
		before := mono()
		now, err := i.Time(context.Background()).Result()
		after := mono()
		if err != nil {
			i.t.Fatal(err)
		}
		least, most = max(least, before-now.UnixNano()), min(most, after-now.UnixNano())
	}
	var since, ms int64
	if _, err := fmt.Sscan(i.fields(key)[hold], &since, &ms); err != nil {
		return 0, 0
	}
	end := (since/1000 + ms) * int64(time.Millisecond)
	return end + least, end + most
}

func (i inspector) awaitFree(key string, limit time.Duration) {
	i.t.Helper()
	testserver.Eventually(i.t, limit, "nobody holds the key any more", func() bool { return i.holds(key) == 0 })
}

func wantFree(t *testing.T, l *core.Locker, key string) {
	t.Helper()
	lease, err := l.TryAcquire(context.Background(), key)
	if err != nil {
		t.Errorf("the key is not free: %v", err)
		return
	}
	release(t, lease)
}

func wantBusy(t *testing.T, l *core.Locker, key string) {
	t.Helper()
	lease, err := l.TryAcquire(context.Background(), key)
	if err == nil {
		release(t, lease)
	}
	wantErr(t, "an attempt at a held key", err, core.ErrBusy)
}

type recorder struct {
	mu     sync.Mutex
	events []core.Event
}

func (r *recorder) Observe(_ context.Context, e core.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) all(kind core.Kind) []core.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []core.Event
	for _, e := range r.events {
		if e.Kind == kind {
			all = append(all, e)
		}
	}
	return all
}
