package hazards_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestDeletedKeys deletes keys while they are held. An extension is due every 4 s.
// Without an answer to the extension, the leases would last for more than 11 s.
func TestDeletedKeys(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	const ttl = 12 * time.Second
	prepare := func(t *testing.T, name string, n int) (*core.Locker, inspector, []*core.Lease) {
		server := testserver.StartRedis(t)
		l := newLocker(t, server.Addr)
		leases := make([]*core.Lease, n)
		for i := range leases {
			leases[i] = acquire(t, l, fmt.Sprintf("%s:%d", name, i), core.TTL(ttl))
		}
		return l, inspect(t, server), leases
	}
	// judge waits until the holders are notified of the loss, and checks the outcome.
	judge := func(t *testing.T, l *core.Locker, asks inspector, leases []*core.Lease, deleted int64) {
		for _, lease := range leases {
			end := ended(t, lease)
			wantLost(t, lease)
			if took := ms(deleted, end); took > ttl*2/3 {
				t.Errorf("the holder learned of its loss after %v", took)
			}
			if left := asks.fields(lease.Key()); len(left) > 0 {
				t.Errorf("the key was created again: %v", left)
			}
			_, err := l.Acquire(lease.Context(), lease.Key())
			wantErr(t, "acquire under a lost lease", err, core.ErrLost)
			wantErr(t, "extend", lease.Extend(context.Background(), ttl), core.ErrLost)
			wantErr(t, "release", lease.Release(context.Background()), core.ErrLost)
			if asks.holds(lease.Key()) != 0 {
				t.Error("the key is held again")
			}
		}
	}

	// hazard 38. The lease is lost at its next extension, and the key stays absent.
	t.Run("delete a held key", func(t *testing.T) {
		t.Parallel()
		l, asks, leases := prepare(t, "deleted", count(50))
		for _, lease := range leases {
			asks.Del(context.Background(), stored(lease.Key()))
		}
		judge(t, l, asks, leases, mono())
	})
	// hazard 38
	t.Run("empty the server", func(t *testing.T) {
		t.Parallel()
		l, asks, leases := prepare(t, "emptied", count(50))
		asks.FlushAll(context.Background())
		judge(t, l, asks, leases, mono())
	})
	// hazard 38
	t.Run("release a deleted key", func(t *testing.T) {
		t.Parallel()
		_, asks, leases := prepare(t, "released", count(50))
		for _, lease := range leases {
			asks.Del(context.Background(), stored(lease.Key()))
			wantErr(t, "release", lease.Release(context.Background()), core.ErrLost)
			if asks.holds(lease.Key()) != 0 {
				t.Error("the key is held again")
			}
		}
	})
	// hazard 16. The lease stays lost although the key is free again.
	t.Run("lost after the next holder", func(t *testing.T) {
		t.Parallel()
		l, asks, leases := prepare(t, "lost", count(100))
		rivals := newLocker(t, asks.Options().Addr)
		for _, lease := range leases {
			asks.Del(context.Background(), stored(lease.Key()))
			rival := acquire(t, rivals, lease.Key(), core.Wait(0))
			if rival.Token() <= lease.Token() {
				t.Errorf("token %d after %d", rival.Token(), lease.Token())
			}
			release(t, rival)
		}
		judge(t, l, asks, leases, mono())
	})
}
