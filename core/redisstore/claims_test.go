package redisstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// claimOf returns an exclusive claim of a new owner for key.
func claimOf(key string) store.Claim {
	return store.Claim{
		Key: key, Owner: rand.Text(), Lease: rand.Text(),
		Weight: store.All, Limit: store.All, TTL: time.Minute,
	}
}

// claimed returns an exclusive claim of a new key.
func claimed() store.Claim { return claimOf("test:" + rand.Text()) }

func claims(n int) []store.Claim {
	all := make([]store.Claim, n)
	for i := range all {
		all[i] = claimed()
	}
	return all
}

// forms contains functions that return claims of new keys, by the form of the key after
// the grant. A usual claim makes the short string, an unusual claim a string of fields.
var forms = map[string]func() store.Claim{
	"a string": claimed,
	"hash fields": func() store.Claim {
		c := claimed()
		c.MinToken = 2
		return c
	},
}

// shared returns c as a reader of its key.
func shared(c store.Claim) store.Claim {
	c.Weight, c.MinToken = 1, 0
	return c
}

// nested returns another claim of c's owner.
func nested(c store.Claim) store.Claim {
	c.Lease = rand.Text()
	return c
}

// begins returns c as a claim that begins a run.
func begins(c store.Claim, value string) store.Claim {
	c.Record = &store.Record{Value: []byte(value), Retain: time.Hour}
	return c
}

// saves returns c as a claim whose release saves a record.
func saves(c store.Claim, value string, attempt int, done bool) store.Claim {
	c.Record = &store.Record{Value: []byte(value), Attempt: attempt, Done: done, Retain: time.Hour}
	return c
}

// undoes returns c as a claim whose release undoes its run.
func undoes(c store.Claim) store.Claim {
	c.Record, c.Undo = nil, true
	return c
}

// stored returns the name in Redis of c's key.
func stored(c store.Claim) string { return "lk2:{" + c.Key + "}" }

func acquire(t testing.TB, s *redisstore.Store, c store.Claim) store.Grant {
	t.Helper()
	g, err := asked(func() (store.Grant, error) { return s.Acquire(context.Background(), c) })
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return g
}

// release fails the test unless c is released.
func release(t testing.TB, s *redisstore.Store, c store.Claim) {
	t.Helper()
	if err := released(s, c); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// released releases c. A repeated release can find no hold, because an earlier call can
// have arrived.
func released(s *redisstore.Store, c store.Claim) error {
	calls := 0
	_, err := asked(func() (struct{}, error) {
		calls++
		return struct{}{}, s.Release(context.Background(), c)
	})
	if calls > 1 && errors.Is(err, store.ErrLost) {
		return nil
	}
	return err
}

func extend(s store.Store, c store.Claim) error {
	_, err := asked(func() (struct{}, error) {
		return struct{}{}, s.Extend(context.Background(), []store.Claim{c})[0].Err
	})
	return err
}

// asked repeats a call while its answer is late. A call ends after two seconds, and a
// busy machine can need longer for the answer. A claim may be repeated.
func asked[T any](call func() (T, error)) (T, error) {
	for deadline := time.Now().Add(soon); ; {
		answer, err := call()
		if !late(err) || time.Now().After(deadline) {
			return answer, err
		}
	}
}

// late reports whether err only means that no answer arrived in time.
func late(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "no answer within") || strings.HasSuffix(err.Error(), "i/o timeout"))
}

func wantIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

// unknown fails the test unless err says that the outcome is unknown.
func unknown(t testing.TB, what string, err error) {
	t.Helper()
	for _, class := range []error{store.ErrUnavailable, store.ErrBusy, store.ErrLost, store.ErrInvalid, store.ErrUnsupported} {
		if err == nil || errors.Is(err, class) {
			t.Fatalf("%s: got %v, want an error that leaves the outcome open", what, err)
		}
	}
}

// rig is a server with a proxy in front of it, a store through the proxy, and a direct
// store.
type rig struct {
	server  *testserver.Redis
	proxy   *testserver.Proxy
	client  *redis.Client
	store   *redisstore.Store // on client, through the proxy
	direct  *redisstore.Store
	asks    *redis.Client // for requests of the test itself
	options []redisstore.Option
}

func newRig(t *testing.T, server *testserver.Redis, edit func(*redis.Options), opts ...redisstore.Option) *rig {
	t.Helper()
	r := &rig{server: server, proxy: testserver.NewRedisProxy(t, server.Addr), options: opts, asks: testclient.Redis(t, server.Addr)}
	if edit == nil {
		edit = func(*redis.Options) {}
	}
	r.client = testclient.Redis(t, r.proxy.Addr, edit)
	r.store = newStore(t, r.client, opts...)
	r.direct = newStore(t, testclient.Redis(t, server.Addr), opts...)
	// The server has to know the scripts, so that each call is one command.
	c := claimed()
	acquire(t, r.direct, c)
	if err := extend(r.direct, c); err != nil {
		t.Fatal(err)
	}
	release(t, r.direct, c)
	return r
}

// ways contains the client's settings that determine when a call returns.
var ways = map[string]func(*redis.Options){
	"context on the socket": nil,
	"default options": func(o *redis.Options) {
		o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = false, 0, 0
	},
}

// exists reports whether anything is stored for c.
func (r *rig) exists(t testing.TB, c store.Claim) bool {
	t.Helper()
	fields := r.fields(t, c)
	delete(fields, "t") // the tokens of a grant stay until the clock has passed them
	return len(fields) > 0
}

func (r *rig) fields(t testing.TB, c store.Claim) map[string]string {
	t.Helper()
	m, err := testclient.Fields(context.Background(), r.asks, stored(c))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// last returns the last token that the fields show, which is the value of field t. A
// short string has no such field. In this case last returns the time at which the
// string was written.
func last(fields map[string]string) uint64 {
	token := fields["t"]
	for name, value := range fields {
		if words := strings.Fields(value); token == "" && strings.HasPrefix(name, "h:") && len(words) == 3 {
			token = words[0]
		}
	}
	n, _ := strconv.ParseUint(token, 10, 64)
	return n
}

// slack is the maximum delay of a call's return on a busy machine. It is below the
// time-outs of a client.
const slack = 2 * time.Second

// within runs call with a context that is done after d. It fails the test unless call
// returns soon after that.
func within(t testing.TB, d time.Duration, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	start := time.Now()
	err := call(ctx)
	if took := time.Since(start); took > d+slack {
		t.Errorf("the call returned after %v, its context ended after %v", took, d)
	}
	return err
}
