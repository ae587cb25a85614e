package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestRelease_ManyKeys checks that the releases of all keys of one lease are in flight at
// once, each in one request.
func TestRelease_ManyKeys(t *testing.T) {
	t.Parallel()
	const keys = 64
	server := testserver.SharedZooKeeper(t)
	admin := testclient.ZooKeeper(t, session, server)
	for _, answered := range []bool{true, false} {
		t.Run(fmt.Sprintf("answered %t", answered), func(t *testing.T) {
			t.Parallel()
			all := make([]string, keys)
			for i := range all {
				all[i] = fmt.Sprintf("together %t:%d", answered, i)
			}
			free := func(when string) {
				t.Helper()
				for _, key := range all {
					if left := places(t, admin, key); len(left) > 0 {
						t.Errorf("got %q in the node of a key after %s, want nothing", left, when)
					}
				}
			}
			proxy := testserver.NewZooKeeperProxy(t, server)
			l, next := lockerOn(t, newStore(t, []string{proxy.Addr})), lockerOn(t, newStore(t, []string{server}))
			lease := acquire(t, l, all[0], core.Also(all[1:]...))
			proxy.Forget()
			requests := testserver.Match{Command: "delete", Times: -1}
			fault := proxy.Inject(requests, testserver.HoldReply)
			released := make(chan error, 1)
			go func() { released <- lease.Release(context.Background()) }()
			eventually(t, "all releases are in flight", func() bool { return proxy.Count(requests) >= keys })
			if answered {
				fault.Deliver()
			}
			err := <-released
			fault.Deliver()
			switch {
			case answered && err != nil:
				t.Errorf("release: got %v, want nil", err)
			case !answered && (!errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "64 of 64 keys are not released yet")):
				t.Errorf("release: got %v, want %v with the number of keys", err, store.ErrUnavailable)
			}
			// Some requests can be sent again on a busy machine.
			if n := proxy.Count(requests); answered && n > 2*keys {
				t.Errorf("got %d requests, want one for each of %d keys", n, keys)
			}
			free("the release")
			if err := next.Do(t.Context(), all[0], func(context.Context) error { return nil }, core.Also(all[1:]...), core.Wait(0)); err != nil {
				t.Errorf("another owner: got %v, want all keys", err)
			}
			free("Do")
		})
	}
}
