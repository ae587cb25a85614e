package hazards_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

// cutOff is one holder whose network is cut, with the outcome.
type cutOff struct {
	key   string
	hold  string // the hold's name at the server
	proxy *testserver.Proxy
	lease *core.Lease
	rival *core.Lease

	until    int64 // last time after which a check found the lease held
	notified int64 // when the context's end was seen
	expiry   int64 // time before which the key could not expire
	granted  int64 // time at which a rival had been granted the key
	err      error
}

// TestPartition is not parallel to other tests, because it checks exact times.
func TestPartition(t *testing.T) {
	testserver.RequireRedis(t)
	// hazard 46. Each of 100 holders is notified before its key can expire.
	t.Run("cut off and notified before expiry", func(t *testing.T) {
		const holders, ttl = 100, 8 * time.Second
		server := testserver.StartRedis(t)
		asks := inspect(t, server)
		rivals := newLocker(t, server.Addr)
		all := make([]*cutOff, holders)
		for i := range all {
			c := &cutOff{key: fmt.Sprintf("cut:%d", i), proxy: testserver.NewRedisProxy(t, server.Addr)}
			c.lease = acquire(t, newLocker(t, c.proxy.Addr), c.key, core.TTL(ttl))
			c.hold = asks.hold(c.key)
			all[i] = c
		}
		late := lateness(t)
		var wg sync.WaitGroup
		for _, c := range all {
			wg.Go(func() { c.play(asks, rivals, ttl) })
		}
		wg.Wait()
		most := late()
		oracle := newOracle(t, 2*holders)
		margin := ttl
		for _, c := range all {
			c.judge(t, oracle, most)
			margin = min(margin, time.Duration(c.expiry-c.until))
		}
		t.Logf("the latest was notified %v before its key could expire", margin.Round(time.Millisecond))
	})
}

// play cuts the holder off at any phase of its extensions, and lets a rival wait for its
// key.
func (c *cutOff) play(asks inspector, rivals *core.Locker, ttl time.Duration) {
	time.Sleep(rand.N(ttl / 2))
	c.proxy.Partition()
	c.expiry = asks.expiry(c.key, c.hold)
	var wg sync.WaitGroup
	wg.Go(func() {
		c.rival, c.err = rivals.Acquire(context.Background(), c.key, core.TTL(ttl), core.Wait(patience))
		c.granted = mono()
	})
	wg.Go(func() { c.until = guard(c.lease, patience, func() { time.Sleep(4 * time.Millisecond) }) })
	var err error
	select {
	case <-c.lease.Context().Done():
		c.notified = mono()
		// An extension may have reached the server at the moment of the cut.
		c.expiry = max(c.expiry, asks.expiry(c.key, c.hold))
	case <-time.After(patience):
		err = errors.New("the context did not end")
	}
	wg.Wait()
	c.err = cmp.Or(err, c.err)
}

// judge checks the end of the holder's lease. late is the longest delay of a timer in
// this process.
func (c *cutOff) judge(t *testing.T, oracle *oracle, late time.Duration) {
	if c.err != nil {
		t.Errorf("%s: %v", c.key, c.err)
		return
	}
	wantLost(t, c.lease)
	if c.until >= c.expiry {
		t.Errorf("%s: the lease was relied on %v after the key could expire", c.key, ms(c.expiry, c.until))
	}
	if c.notified >= c.expiry+int64(late) {
		t.Errorf("%s: the context ended %v after the key could expire", c.key, ms(c.expiry, c.notified))
	}
	if c.granted < c.expiry {
		t.Errorf("%s: another process was granted the key %v before it could expire", c.key, ms(c.granted, c.expiry))
	}
	oracle.add(span{c.key, "holder", 0, c.until, c.lease.Token()})
	oracle.add(span{c.key, "rival", c.granted, mono(), c.rival.Token()})
	// Messages that were in flight arrive late, and change nothing.
	c.proxy.Heal()
	wantErr(t, "release of a lost lease", c.lease.Release(context.Background()), core.ErrLost)
	wantHeld(t, c.rival)
	release(t, c.rival)
}
