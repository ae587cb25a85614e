package hazards_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// freezes are ways in which a server stops answering for a while. With "writes paused"
// it still answers reads. Each begin returns when the server has stopped answering. The
// function that begin returns waits for the end of d, or of the server's sleep, and
// resumes a stopped server.
var freezes = []struct {
	name   string
	trials int
	begin  func(t *testing.T, s *testserver.Redis, d time.Duration) (end func())
}{
	// hazard 23
	{"server stopped", count(100) / 2, func(t *testing.T, s *testserver.Redis, d time.Duration) func() {
		s.Pause()
		testserver.Eventually(t, patience, "the server stops", func() bool { return stands(s.Pid()) })
		over := time.After(d)
		return func() {
			<-over
			s.Resume()
		}
	}},
	// hazard 23
	{"server asleep", count(100) / 2, func(t *testing.T, s *testserver.Redis, d time.Duration) func() {
		c := testclient.Redis(t, s.Addr, func(o *redis.Options) { o.ReadTimeout = -1 })
		awake := testclient.Redis(t, s.Addr, func(o *redis.Options) {
			o.MaxRetries, o.ReadTimeout = -1, 100*time.Millisecond
		})
		for _, client := range []*redis.Client{c, awake} {
			testserver.Eventually(t, patience, "there is a connection", func() bool {
				return client.Ping(context.Background()).Err() == nil
			})
		}
		var wg sync.WaitGroup
		wg.Go(func() { c.Do(context.Background(), "DEBUG", "SLEEP", d.Seconds()) })
		silent := 0 // a busy machine may be too slow for one or two answers
		testserver.Eventually(t, patience, "the server sleeps", func() bool {
			if silent++; awake.Ping(context.Background()).Err() == nil {
				silent = 0
			}
			return silent == 3
		})
		return wg.Wait
	}},
	// hazard 24
	{"writes paused", count(40) / 2, clientPause("WRITE")},
	// hazard 24
	{"everything paused", count(40) / 2, clientPause("ALL")},
}

func clientPause(what string) func(*testing.T, *testserver.Redis, time.Duration) func() {
	return func(_ *testing.T, s *testserver.Redis, d time.Duration) func() {
		s.Do("CLIENT", "PAUSE", d.Milliseconds(), what)
		over := time.After(d)
		return func() { <-over }
	}
}

// TestFrozenServer checks that leases are lost in time and no acquire succeeds while a
// server does not answer (hazards 23 and 24).
func TestFrozenServer(t *testing.T) {
	testserver.RequireRedis(t)
	t.Parallel()
	for _, f := range freezes {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			bit := newBites(t, "a lease was held when the server froze", f.trials*frozenHolders*3/4)
			trials(t, f.trials, func(t *testing.T, n int) {
				oracle := newOracle(t, 2*frozenHolders)
				z := freezer(t)
				time.Sleep(rand.N(frozenTTL / 2))
				for _, lease := range z.leases {
					if lease.Context().Err() == nil {
						bit.add()
					}
				}
				end := f.begin(t, z.server, 3*frozenTTL)
				var wg sync.WaitGroup
				wg.Go(func() { z.refused(t) })
				z.endInTime(t)
				wg.Wait()
				end()
				z.resumes(t, oracle)
			})
		})
	}
}

const (
	frozenTTL     = 2 * time.Second
	frozenHolders = 4
)

type frozen struct {
	*site
	asks    inspector
	lockers []*core.Locker
	leases  []*core.Lease
	ends    []int64
	spans   []span
}

func freezer(t *testing.T) *frozen {
	z := &frozen{site: newSite(t, "--enable-debug-command", "yes")}
	z.asks = inspect(t, z.server)
	for i := range frozenHolders {
		l := newLocker(t, z.server.Addr)
		opts := []core.AcquireOption{core.TTL(frozenTTL)}
		if i == 0 {
			opts = append(opts, core.NoRenew())
		}
		lease := acquire(t, l, z.key(i), opts...)
		z.lockers, z.leases = append(z.lockers, l), append(z.leases, lease)
		z.spans = append(z.spans, span{Key: z.key(i), Who: "holder", From: mono(), Token: lease.Token()})
		time.Sleep(rand.N(frozenTTL / 20))
	}
	return z
}

func (z *frozen) key(i int) string { return fmt.Sprintf("frozen:%d", i) }

// refused checks that acquires of free keys fail while the server does not answer.
func (z *frozen) refused(t *testing.T) {
	t.Helper()
	var wg sync.WaitGroup
	for i, l := range z.lockers {
		wg.Go(func() {
			// A second is long enough for a busy machine to send the request.
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := l.Acquire(ctx, z.key(i)+":free", core.TTL(time.Minute))
			wantErr(t, "acquire", err, core.ErrUnavailable, context.DeadlineExceeded)
		})
	}
	wg.Wait()
}

// endInTime waits for the end of all leases, records the times, and fails the test unless
// the leases were lost.
func (z *frozen) endInTime(t *testing.T) {
	t.Helper()
	z.ends = make([]int64, len(z.leases))
	var wg sync.WaitGroup
	for i, lease := range z.leases {
		wg.Go(func() {
			z.spans[i].Until = guard(lease, time.Hour, func() {})
			z.ends[i] = mono()
		})
	}
	wg.Wait()
	for _, lease := range z.leases {
		wantLost(t, lease)
	}
}

// resumes checks the leases and the keys when the server answers again.
func (z *frozen) resumes(t *testing.T, oracle *oracle) {
	t.Helper()
	rivals := newLocker(t, z.server.Addr)
	for i, lease := range z.leases {
		key := z.key(i)
		rival := acquire(t, rivals, key)
		r := span{Key: key, Who: "rival", From: mono(), Token: rival.Token()}
		r.Until = guard(rival, 10*time.Millisecond, func() {})
		oracle.add(z.spans[i])
		oracle.add(r)
		if expiry := z.lastWord(key, z.ends[i]) + int64(frozenTTL-time.Millisecond); z.spans[i].Until >= expiry {
			t.Errorf("%s: the lease was relied on %v after the key could expire", key, ms(expiry, z.spans[i].Until))
		}
		wantErr(t, "release of a lost lease", lease.Release(context.Background()), core.ErrLost)
		release(t, rival)
		// The server may have granted the claims that timed out. They are released in
		// the background.
		z.asks.awaitFree(key+":free", 20*time.Second)
	}
}

// lastWord returns the time of the last acquire or extension of a key that the server
// executed before the given time.
func (z *frozen) lastWord(key string, before int64) int64 {
	last := int64(0)
	for _, c := range append(z.tap.calls("acquire", key), z.tap.calls("extend", key)...) {
		if c.At < before {
			last = max(last, c.At)
		}
	}
	return last
}
