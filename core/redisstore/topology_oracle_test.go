package redisstore_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
)

// oracle judges holders independently of the kit, on one monotonic clock. No two may
// believe at the same time that they hold the same key. A later holder must have the
// higher token.
type oracle struct {
	start time.Time

	mu    sync.Mutex
	stays []stay
}

// stay is the time during which a caller believed that it held a key.
type stay struct {
	key      string
	from, to time.Duration
	token    uint64
}

func newOracle() *oracle { return &oracle{start: time.Now()} }

// visit is a stay that has not finished.
type visit struct {
	oracle *oracle
	lease  *core.Lease
	keys   []string
	from   time.Duration

	mu sync.Mutex
	to time.Duration
}

// enter begins a stay. Call it when Acquire has returned.
func (o *oracle) enter(lease *core.Lease, keys ...string) *visit {
	now := time.Since(o.start)
	return &visit{oracle: o, lease: lease, keys: append(keys, lease.Key()), from: now, to: now}
}

// believe checks the lease, as work does before each of its steps. The stay lasts until
// the start of the last successful check. This time is never after the real end of the
// belief, however late the test itself is scheduled.
func (v *visit) believe() bool {
	now := time.Since(v.oracle.start)
	if v.lease.Context().Err() != nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.to = max(v.to, now)
	return true
}

// work calls believe repeatedly for d, or until it returns false.
func (v *visit) work(d time.Duration) {
	for end := time.Now().Add(d); v.believe() && time.Now().Before(end); {
		time.Sleep(max(d/10, 200*time.Microsecond))
	}
}

// leave ends the stay and then releases the lease.
func (v *visit) leave() error {
	v.believe()
	v.oracle.mu.Lock()
	for _, key := range v.keys {
		v.oracle.stays = append(v.oracle.stays, stay{key, v.from, v.to, v.lease.TokenOf(key)})
	}
	v.oracle.mu.Unlock()
	return v.lease.Release(context.Background())
}

func (o *oracle) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.stays)
}

// violations returns the stays that overlapped, and the tokens that did not grow.
func (o *oracle) violations() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.SortFunc(o.stays, func(a, b stay) int {
		return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.from, b.from))
	})
	var all []string
	var last stay
	for _, s := range o.stays {
		if s.key == last.key {
			if s.from < last.to {
				all = append(all, fmt.Sprintf("%s: held from %v to %v, and from %v to %v", s.key, last.from, last.to, s.from, s.to))
			}
			if s.token <= last.token {
				all = append(all, fmt.Sprintf("%s: token %d of %v came after %d of %v", s.key, s.token, s.from, last.token, last.from))
			}
			if s.to < last.to {
				s.to = last.to
			}
		}
		last = s
	}
	return all
}

// judge fails the test on any violation. It also fails if fewer stays were seen than the
// number least, because the test would then prove nothing.
func (o *oracle) judge(t testing.TB, least int) {
	t.Helper()
	for _, v := range o.violations() {
		t.Error(v)
	}
	if n := o.count(); n < least {
		t.Errorf("only %d stays were seen, %d are needed", n, least)
	} else {
		t.Logf("%d stays", n)
	}
}

// process returns a Locker with its own Store on client, as in another process. The
// Locker is closed before its client.
func process(t testing.TB, client redis.UniversalClient, opts ...redisstore.Option) *core.Locker {
	t.Helper()
	l, err := core.New(newStore(t, client, opts...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

func keyOf(key string) string { return "lk2:{" + key + "}" }

func TestOracle(t *testing.T) {
	t.Parallel()
	store := &generous{}
	var lockers [2]*core.Locker // a single Locker would serialize its own callers
	for i := range lockers {
		var err error
		if lockers[i], err = core.New(store); err != nil {
			t.Fatal(err)
		}
	}
	two := func() (*visit, *visit) {
		o := newOracle()
		var all [2]*visit
		for i := range all {
			lease, err := lockers[i].Acquire(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			all[i] = o.enter(lease)
		}
		return all[0], all[1]
	}
	end := func(all ...*visit) {
		for _, v := range all {
			if err := v.leave(); err != nil {
				t.Error(err)
			}
		}
	}
	first, second := two()
	second.work(time.Millisecond)
	first.work(time.Millisecond)
	end(second, first)
	if got := first.oracle.violations(); len(got) != 1 || !strings.Contains(got[0], "held") {
		t.Errorf("a lock that does nothing passes: %q", got)
	}
	store.repeat = true
	first, second = two()
	end(first, second)
	if got := first.oracle.violations(); !slices.ContainsFunc(got, func(v string) bool { return strings.Contains(v, "token") }) {
		t.Errorf("a token that repeats passes: %q", got)
	}
}

// generous is a store that grants everything, and repeats tokens if repeat is set.
type generous struct {
	mu     sync.Mutex
	token  uint64
	repeat bool
}

func (s *generous) Acquire(_ context.Context, c store.Claim) (store.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.repeat {
		s.token++
	}
	return store.Grant{Owner: c.Owner, Token: s.token}, nil
}

func (s *generous) Extend(_ context.Context, claims []store.Claim) []store.Extension {
	return make([]store.Extension, len(claims))
}

func (s *generous) Release(context.Context, store.Claim) error { return nil }
