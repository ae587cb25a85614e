package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func newLocks(t *testing.T, store store.Store) *core.Locker {
	t.Helper()
	locks, err := core.New(store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		_ = locks.Close(ctx)
	})
	return locks
}

// TestLateReleaseOfUnseenGrant releases a grant that too few replicas have. That
// release can be late. It must not end the grant of the same claim when the claim is
// sent again (hazards 13 and 18).
func TestLateReleaseOfUnseenGrant(t *testing.T) {
	t.Parallel()
	master := testserver.StartRedis(t)
	replica := replicaOf(t, master)
	proxy := testserver.NewRedisProxy(t, master.Addr)
	locks := newLocks(t, newStore(t, testclient.Redis(t, proxy.Addr), redisstore.WithReplicas(1, 300*time.Millisecond)))
	rivals := newLocks(t, newStore(t, testclient.Redis(t, master.Addr)))

	held := proxy.Inject(testserver.Match{Script: "release"}, testserver.HoldRequest)
	replica.Pause()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		<-held.Fired()
		replica.Resume()
	})
	lease, err := locks.TryAcquire(t.Context(), "late", core.TTL(9*time.Second))
	held.Deliver()
	if err == nil {
		defer lease.Release(context.Background())
	} else if !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("acquire: %v", err)
	}
	// The loop continues for some time after the release was delivered and answered.
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		rival, err := rivals.TryAcquire(t.Context(), "late")
		if err != nil {
			continue
		}
		if lease != nil && lease.Context().Err() == nil {
			t.Error("two holders")
		}
		_ = rival.Release(context.Background())
		break
	}
}

func TestGivingUp_LeavesNothing(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	locks := newLocks(t, newStore(t, testclient.Redis(t, server.Addr)))
	lease, err := newLocks(t, newStore(t, testclient.Redis(t, server.Addr))).TryAcquire(t.Context(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	asks := testclient.Redis(t, server.Addr)
	for range 50 {
		if _, err := locks.Acquire(t.Context(), "busy", core.TTL(time.Hour), core.Wait(time.Millisecond)); !errors.Is(err, store.ErrBusy) {
			t.Fatalf("acquire: %v", err)
		}
	}
	testserver.Eventually(t, soon, "the hold and its token are all there is", func() bool {
		fields, err := testclient.Fields(t.Context(), asks, "lk2:{busy}")
		return err == nil && len(fields) == 2
	})
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if server.Do("EXISTS", "lk2:{busy}") != int64(0) {
		t.Error("the key is still there after the release")
	}
}
