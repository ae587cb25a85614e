package hazards_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestSecrets checks that errors, events and log lines contain no key, owner, lease or
// token, in many kinds of failures. A key can be a customer's data, and a reader of an
// owner can join the owner's locks.
func TestSecrets(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	server := testserver.StartRedis(t)
	// This user lacks the rights to some keys.
	server.Do("ACL", "SETUSER", "some", "reset", "on", ">pw", "~lk2:{order:*", "&*", "+@all")
	w := &witness{secrets: make(map[string]string)}
	proxy := testserver.NewRedisProxy(t, server.Addr)
	var lockers []*core.Locker
	var closes []func()
	for _, opts := range [][]redisstore.Option{nil, {redisstore.WithReplicas(1, 20*time.Millisecond)}, {redisstore.WithPlainKeys(), redisstore.WithPrefix("plain:")}} {
		store, err := redisstore.New(testclient.Redis(t, proxy.Addr, func(o *redis.Options) {
			o.Username, o.Password, o.ReadTimeout = "some", "pw", 500*time.Millisecond
		}), opts...)
		if err != nil {
			t.Fatal(err)
		}
		l, err := core.New(&seeing{store, w}, core.WithObserver(core.Observers(w,
			core.SlogObserver(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))),
			core.SlogObserver(slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))))))
		if err != nil {
			t.Fatal(err)
		}
		closes = append(closes, func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			w.error(l.Close(ctx))
			w.error(store.Close())
		})
		lockers = append(lockers, l)
	}
	calamities := []testserver.Action{
		testserver.DropRequest, testserver.CloseRequest, testserver.DropReply, testserver.CloseReply, testserver.DoubleRequest,
		testserver.GarbageReply, testserver.UnrelatedReply, testserver.ErrorReply("OOM command not allowed"),
		testserver.ErrorReply("READONLY You can't write against a read only replica."), testserver.ErrorReply("ERR what is this"),
	}
	scripts := []string{"acquire", "extend", "release"}
	// One lease is extended and one acquire is refused, before faults begin. On a busy
	// machine this can take several leases.
	testserver.Eventually(t, time.Minute, "a lease is extended, and its key busy", func() bool {
		calm, err := lockers[0].Acquire(t.Context(), "order:"+rand.Text(), core.TTL(time.Second))
		if err != nil {
			return false
		}
		_, err = lockers[0].TryAcquire(t.Context(), calm.Key())
		w.error(err)
		for calm.Context().Err() == nil && w.count(core.Extended) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		w.error(calm.Release(t.Context()))
		return w.count(core.Extended) > 0 && w.count(core.Busy) > 0
	})
	for n := range 12 {
		w.use(lockers[n%len(lockers)], server, proxy, 0, n)
	}
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			for n := range count(100) {
				if n%3 == 0 {
					proxy.Inject(testserver.Match{Script: scripts[mrand.N(len(scripts))]}, calamities[mrand.N(len(calamities))])
				}
				w.use(lockers[g%len(lockers)], server, proxy, g, n)
			}
		})
	}
	wg.Wait()
	// From here on all clean-ups can succeed.
	server.Do("FLUSHALL")
	server.Do("ACL", "SETUSER", "some", "allkeys")
	for _, end := range closes {
		wg.Go(end) // clean-ups also log
	}
	wg.Wait()
	w.judge(t)
}

// witness collects all visible texts, and all secrets that must not occur in these
// texts.
type witness struct {
	mu      sync.Mutex
	secrets map[string]string // each secret with its kind
	text    bytes.Buffer
	events  map[core.Kind]int
	errors  int
}

func (w *witness) secret(what, s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(s) > 10 {
		w.secrets[s] = what
	}
}

func (w *witness) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *witness) Observe(_ context.Context, e core.Event) {
	w.mu.Lock()
	if w.events == nil {
		w.events = make(map[core.Kind]int)
	}
	w.events[e.Kind]++
	w.mu.Unlock()
	fmt.Fprintf(w, "%v %+v\n", e, e)
	w.error(e.Err)
}

func (w *witness) count(k core.Kind) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[k]
}

func (w *witness) error(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	w.errors++
	w.mu.Unlock()
	fmt.Fprintf(w, "%v %+v %s %q\n", err, err, err, err)
}

// seeing is a store that records the secrets of each acquire, and all errors, in w.
type seeing struct {
	*redisstore.Store
	w *witness
}

func (s *seeing) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	s.w.secret("a lease", c.Lease)
	s.w.secret("an owner", c.Owner)
	g, err := s.Store.Acquire(ctx, c)
	s.w.secret("a token", strconv.FormatUint(g.Token, 10))
	s.w.error(err)
	return g, err
}

func (s *seeing) Extend(ctx context.Context, claims []store.Claim) []store.Extension {
	all := s.Store.Extend(ctx, claims)
	for _, x := range all {
		s.w.error(x.Err)
	}
	return all
}

func (s *seeing) Release(ctx context.Context, c store.Claim) error {
	err := s.Store.Release(ctx, c)
	s.w.error(err)
	return err
}

// use locks a key that is a person's data, provokes errors, and records them.
func (w *witness) use(l *core.Locker, server *testserver.Redis, proxy *testserver.Proxy, g, n int) {
	who := rand.Text()
	w.secret("a key", who)
	name := "order"
	switch n % 9 {
	case 4:
		name = "forbidden" // this user has no rights to this name
	case 7:
		server.Do("RPUSH", stored(core.Key(name, who)), "no", "lock")
		server.Do("RPUSH", "plain:"+core.Key(name, who), "no", "lock")
	}
	key := core.Key(name, who)
	if n%13 == 12 {
		key += "\x01" // not allowed in a key
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	opts := []core.AcquireOption{core.TTL(300 * time.Millisecond), core.Wait(mrand.N(100 * time.Millisecond))}
	lease, err := l.Acquire(ctx, key, opts...)
	w.error(err)
	if err != nil {
		return
	}
	w.secret("an owner", lease.Owner())
	w.secret("a token", strconv.FormatUint(lease.Token(), 10))
	_, err = l.TryAcquire(ctx, key, opts...) // busy
	w.error(err)
	inner, err := l.Acquire(lease.Context(), key, opts...)
	w.error(err)
	w.error(lease.Extend(ctx, 400*time.Millisecond))
	if n%5 == 0 {
		server.Do("DEL", stored(key), "plain:"+key)
	}
	if n%4 == 0 {
		// The lease's next extension fails. The wait is longer than the lease is trusted
		// without an extension.
		proxy.Inject(testserver.Match{Script: "extend", Arg: who}, testserver.ErrorReply("ERR not now"))
		select {
		case <-lease.Context().Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	w.error(context.Cause(lease.Context()))
	if inner != nil {
		w.error(inner.Release(ctx))
	}
	w.error(lease.Release(ctx))
	w.error(lease.Extend(ctx, time.Second)) // used after release
	w.error(l.Do(ctx, key, func(ctx context.Context) error {
		return fmt.Errorf("run %d of %d", n, g)
	}, opts...))
}

func (w *witness) judge(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	shown := 0
	for _, word := range regexp.MustCompile(`[0-9A-Za-z]{11,}`).FindAll(w.text.Bytes(), -1) {
		if what := w.secrets[string(word)]; what != "" {
			if shown++; shown <= 5 {
				at := bytes.Index(w.text.Bytes(), word)
				from, to := max(0, at-200), min(w.text.Len(), at+100)
				t.Errorf("%s was shown: %q", what, w.text.Bytes()[from:to])
			}
		}
	}
	t.Logf("%d secrets, %d bytes of text, %d errors, events %v", len(w.secrets), w.text.Len(), w.errors, w.events)
	for _, kind := range []core.Kind{core.Acquired, core.Busy, core.GaveUp, core.Extended, core.ExtendFailed, core.Lost, core.Released, core.CleanedUp} {
		if w.events[kind] == 0 {
			t.Errorf("test setup: no event %q", kind)
		}
	}
	if w.errors < 50 {
		t.Errorf("test setup: %d errors", w.errors)
	}
	tally.Note(t, tally.Facts{Part: "processes", Runs: w.errors, Violations: map[string]int{"secrets shown": shown}})
}
