package redisstore_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestLease_NamedLikeAToken releases a lease whose name is the token at the end of the
// stored string. This release must not end the hold in the string.
func TestLease_NamedLikeAToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	for form, claimed := range forms {
		t.Run(form, func(t *testing.T) {
			c := claimed()
			acquire(t, r.direct, c)
			c.TTL *= 2
			if err := extend(r.direct, c); err != nil {
				t.Fatalf("extend: %v", err)
			}
			other := claimOf(c.Key)
			other.Lease, other.Last = strconv.FormatUint(last(r.fields(t, c)), 10), 1
			wantIs(t, "release", r.direct.Release(t.Context(), other), store.ErrLost)
			busyWith(t, r.direct, claimOf(c.Key))
			wantIs(t, "extend", extend(r.direct, c), nil)
		})
	}
}

// TestToken_Year2001 uses a machine without a real-time clock. Such a machine
// can start in a year whose microseconds have fewer digits (hazard 34).
func TestToken_Year2001(t *testing.T) {
	t.Parallel()
	for form, claimed := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			clock := testserver.NewClock(t, 1)
			s := newStore(t, testclient.Redis(t, clock.StartRedis().Addr))
			c := claimed()
			before := acquire(t, s, c)
			clock.Step(-time.Since(time.Date(1998, 1, 1, 0, 0, 0, 0, time.UTC)))
			c.Last = before.Token
			release(t, s, c)
			if after := acquire(t, s, claimOf(c.Key)); after.Token <= before.Token {
				t.Errorf("the token is %d after %d", after.Token, before.Token)
			}
		})
	}
}

// TestRefusedRelease_KeepsTheKey checks that after a refused release the holder keeps
// the key for as long as before.
func TestRefusedRelease_KeepsTheKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	s := newStore(t, testclient.Redis(t, r.server.Addr, lacking(t, r.server, "set")))
	c := claimed()
	acquire(t, r.direct, c)
	w := claimOf(c.Key)
	w.Wait, w.Fair = true, true
	busyWith(t, r.direct, w) // without the hold, the key would live for a waiter's place only
	wantIs(t, "release", s.Release(t.Context(), c), store.ErrUnavailable)
	if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left < c.TTL/2 {
		t.Errorf("the key lives for %v, want about %v", left, c.TTL)
	}
}

// TestEndedAndAnew checks that expired entries are removed, except entries whose names
// are used again in the same step.
func TestEndedAndAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	for form, claimed := range forms {
		t.Run("hold granted by message "+form, func(t *testing.T) {
			t.Parallel()
			c := claimed()
			acquire(t, r.direct, c)
			// Such a release leaves the key.
			wantIs(t, "release of an unknown lease", r.direct.Release(t.Context(), claimOf(c.Key)), store.ErrLost)
			release(t, r.direct, c)
			reader, x := shared(claimOf(c.Key)), shared(claimOf(c.Key))
			acquire(t, r.direct, reader)
			brief := x
			// The writer arrives before it has expired, or removes it.
			brief.TTL = 100 * time.Millisecond
			acquire(t, r.direct, brief)
			writer := claimOf(c.Key)
			writer.Fair, writer.Wait = true, true
			busyWith(t, r.direct, writer)
			time.Sleep(brief.TTL + 5*time.Millisecond)
			x.Fair, x.Wait, x.Push = true, true, true
			ch := watch(t, r.store, x)
			busyWith(t, r.store, x)
			release(t, r.direct, writer)
			wakes(t, ch)
			acquire(t, r.store, x)
			release(t, r.direct, reader)
			busyWith(t, r.direct, claimOf(c.Key))
		})
		t.Run("refused lease "+form, func(t *testing.T) {
			t.Parallel()
			c := claimed()
			acquire(t, r.direct, c)
			x := claimOf(c.Key)
			brief := x
			brief.TTL = time.Millisecond
			wantIs(t, "release", r.direct.Release(t.Context(), brief), store.ErrLost)
			time.Sleep(5 * time.Millisecond)
			wantIs(t, "release again", r.direct.Release(t.Context(), x), store.ErrLost)
			release(t, r.direct, c)
			_, err := r.direct.Acquire(t.Context(), x)
			wantIs(t, "acquire", err, store.ErrLost)
		})
	}
}
