package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestRelease_ManyKeys checks that the keys of one lease are released side by side, on
// all connections of the pool.
func TestRelease_ManyKeys(t *testing.T) {
	t.Parallel()
	const keys = 64
	also := make([]string, keys-1)
	for i := range also {
		also[i] = fmt.Sprint("order:", i+1)
	}
	for _, connections := range []int{1, 4} {
		t.Run(fmt.Sprintf("pool of %d", connections), func(t *testing.T) {
			t.Parallel()
			lease, proxy, next := leaseOf(t, connections, also)
			fault := proxy.Inject(testserver.Match{Arg: giving, Times: -1}, testserver.HoldReply)
			released := make(chan error, 1)
			go func() { released <- lease.Release(t.Context()) }()
			testserver.Eventually(t, patience, "each connection has sent a release", func() bool {
				return proxy.Times(fault) >= connections
			})
			fault.Deliver()
			// On a busy machine a part of the release can continue in the background.
			err := <-released
			if err != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("release: got %v, want nil", err)
			}
			if left := heldKeys(t, next.store); err == nil && len(left) > 0 {
				t.Errorf("got %d keys that are held after the release, want none: %q", len(left), left)
			}
			testserver.Eventually(t, patience, "the keys are free", func() bool { return len(heldKeys(t, next.store)) == 0 })
			// Some requests can be sent again on a busy machine.
			if n := proxy.Times(fault); n < keys || n > 2*keys {
				t.Errorf("got %d releases, want one for each of %d keys", n, keys)
			}
			next.takesAll(t, also)
		})
	}
	t.Run("two keys unanswered", func(t *testing.T) {
		t.Parallel()
		lease, proxy, next := leaseOf(t, 4, also)
		silent := proxy.Inject(testserver.Match{Arg: giving, Times: -1, If: func(r testserver.Request) bool {
			return strings.Contains(r.Args[0], sql(also[7])+"'") || strings.Contains(r.Args[0], sql(also[30])+"'")
		}}, testserver.HoldRequest)
		err := lease.Release(t.Context())
		reported := 0
		if found := regexp.MustCompile(`(\d+) of 64 keys are not released yet`).FindStringSubmatch(fmt.Sprint(err)); found != nil {
			reported, _ = strconv.Atoi(found[1])
		}
		if left := heldKeys(t, next.store); !errors.Is(err, store.ErrUnavailable) || reported < 2 || len(left) < 2 || len(left) > reported {
			t.Errorf("release: got %v, and %d keys that are held, want %v with their number", err, len(left), store.ErrUnavailable)
		}
		silent.Deliver()
		testserver.Eventually(t, patience, "the keys are free", func() bool { return len(heldKeys(t, next.store)) == 0 })
		next.takesAll(t, also)
	})
}

// successor is another owner of the keys of a lease.
type successor struct {
	store  store.Inspector
	locker *core.Locker
}

// leaseOf returns a lease of the key "order" and the keys in also. The lease's store
// has a pool with this number of connections behind a proxy.
func leaseOf(t *testing.T, connections int, also []string) (*core.Lease, *testserver.Proxy, successor) {
	t.Helper()
	server := database(t)
	proxy := testserver.NewPostgresProxy(t, server.Addr)
	l := newLocker(t, server.URLAt(proxy.Addr, fmt.Sprint("pool_max_conns=", connections), "default_query_exec_mode=exec"))
	var lease *core.Lease
	// The keys do not expire while the test waits for their release.
	err := unlocked(func() (err error) {
		lease, err = l.Acquire(t.Context(), "order", core.Also(also...), core.TTL(time.Hour))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lease, proxy, successor{newStore(t, testclient.Postgres(t, server.URL())), newLocker(t, server.URL())}
}

// takesAll acquires and releases all the keys. It fails the test if a key is held before
// or afterwards. On a busy machine a call can time out, and continue in the background.
func (s successor) takesAll(t *testing.T, also []string) {
	t.Helper()
	testserver.Eventually(t, patience, "another owner has all keys", func() bool {
		return s.locker.Do(t.Context(), "order", func(context.Context) error { return nil }, core.Also(also...), core.Wait(0)) == nil
	})
	testserver.Eventually(t, patience, "the keys are free after Do", func() bool { return len(heldKeys(t, s.store)) == 0 })
}

func heldKeys(t *testing.T, s store.Inspector) (keys []string) {
	t.Helper()
	for after := ""; ; {
		var page []store.State
		var next string
		err := unlocked(func() (err error) {
			page, next, err = s.List(t.Context(), after, store.MostListed)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range page {
			keys = append(keys, state.Key)
		}
		if after = next; after == "" {
			return keys
		}
	}
}
