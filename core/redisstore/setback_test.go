package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// setBack changes the entries of c as if the server's clock had been set back. It moves
// every time in the entries into the future by this duration.
func (r *rig) setBack(t *testing.T, c store.Claim, by time.Duration) {
	t.Helper()
	ctx := context.Background()
	add := func(number string, d int64) string {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.FormatInt(n+d, 10)
	}
	ms := regexp.MustCompile(`\b\d{13}(\d{3})?\b`)
	further := func(text string) string {
		return ms.ReplaceAllStringFunc(text, func(n string) string {
			if len(n) == 16 {
				return add(n, by.Microseconds())
			}
			return add(n, by.Milliseconds())
		})
	}
	key := stored(c)
	if meta := r.asks.HGet(ctx, key, "n").Val(); meta != "" {
		if err := testclient.SetField(ctx, r.asks, key, "n", further(meta)); err != nil {
			t.Fatal(err)
		}
	}
	// The short string has no time except the key's expiry.
	if value, err := r.asks.Get(ctx, key).Result(); err != nil || strings.HasPrefix(value, "f") {
		for name, value := range r.fields(t, c) {
			if name == "t" {
				value = add(value, by.Microseconds())
			} else if name != "v" {
				value = further(value)
			}
			if err := testclient.SetField(ctx, r.asks, key, name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := r.asks.PTTL(ctx, key).Val()
	if ok, err := r.asks.PExpire(ctx, key, left+by).Result(); !ok || err != nil {
		t.Fatalf("test setup: nothing is stored (%v)", err)
	}
}

func granted(t *testing.T, r *rig, c store.Claim, limit time.Duration) store.Grant {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		g, err := r.direct.Acquire(t.Context(), c)
		if err == nil {
			return g
		}
		if !errors.Is(err, store.ErrBusy) || time.Now().After(end) {
			t.Fatalf("not granted within %v: %v", limit, err)
		}
	}
}

// TestClockSetBack sets the clock back, so that stored deadlines are further ahead than
// intended (hazard 20).
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	for form, claimed := range forms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			testClockSetBack(t, func(*rig) store.Claim { return claimed() })
		})
	}
	t.Run("a hash", func(t *testing.T) {
		t.Parallel()
		testClockSetBack(t, func(r *rig) store.Claim {
			c := claimed()
			plant(r.direct, c.Key)
			return c
		})
	})
}

func testClockSetBack(t *testing.T, make func(r *rig) store.Claim) {
	const hour, ttl = time.Hour, 5 * time.Second
	r := newRig(t, testserver.StartRedis(t), nil)
	claimed := func() store.Claim { return make(r) }
	t.Cleanup(func() { everyKeyExpires(t, r.server) })

	t.Run("dead holder", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		c.TTL = ttl
		before := acquire(t, r.direct, c)
		r.setBack(t, c, hour)
		start, next := time.Now(), claimOf(c.Key)
		_, err := r.direct.Acquire(t.Context(), next)
		var busy *store.BusyError
		if !errors.As(err, &busy) || busy.RetryAfter > ttl {
			t.Fatalf("acquire: got %v, want busy for no longer than the TTL", err)
		}
		after := granted(t, r, next, ttl+soon)
		// The time is measured by the server's clock, which differs from the test's and
		// is coarser.
		if took := time.Since(start); took < ttl-20*time.Millisecond {
			t.Errorf("the key was free after %v, which is less than the TTL", took)
		}
		if floor := before.Token + uint64(hour.Microseconds()); after.Token <= floor {
			t.Errorf("the token is %d after %d", after.Token, floor)
		}
		release(t, r.direct, next)
		if again := acquire(t, r.direct, claimOf(c.Key)); again.Token <= after.Token {
			t.Errorf("the token is %d after %d", again.Token, after.Token)
		}
	})
	t.Run("live holder", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		c.TTL = ttl
		acquire(t, r.direct, c)
		r.setBack(t, c, hour)
		for end := time.Now().Add(2 * c.TTL); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			_, err := r.direct.Acquire(t.Context(), claimOf(c.Key))
			wantIs(t, "acquire", err, store.ErrBusy)
			if err := extend(r.direct, c); err != nil {
				t.Fatalf("extend: %v", err)
			}
		}
		release(t, r.direct, c)
	})
	t.Run("longer extension", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		c.TTL = ttl
		acquire(t, r.direct, c)
		r.setBack(t, c, hour)
		c.TTL = time.Minute
		if err := extend(r.direct, c); err != nil {
			t.Fatalf("extend: %v", err)
		}
		_, err := r.direct.Acquire(t.Context(), claimOf(c.Key))
		var busy *store.BusyError
		if !errors.As(err, &busy) || busy.RetryAfter < 30*time.Second || busy.RetryAfter > time.Minute {
			t.Errorf("acquire: got %#v, want busy for a minute", err)
		}
	})
	t.Run("repeated claim", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		c.TTL = ttl
		acquire(t, r.direct, c)
		r.setBack(t, c, hour)
		c.TTL = 10 * time.Second
		acquire(t, r.direct, c)
		_, err := r.direct.Acquire(t.Context(), claimOf(c.Key))
		var busy *store.BusyError
		if !errors.As(err, &busy) || busy.RetryAfter < 5*time.Second || busy.RetryAfter > 10*time.Second {
			t.Errorf("acquire: got %#v, want busy for 10s", err)
		}
	})
	t.Run("several readers", func(t *testing.T) {
		t.Parallel()
		short := shared(claimed())
		short.TTL = ttl
		long := shared(claimOf(short.Key))
		acquire(t, r.direct, short)
		acquire(t, r.direct, long)
		r.setBack(t, short, hour)
		next := claimOf(short.Key)
		_, err := r.direct.Acquire(t.Context(), next)
		wantIs(t, "acquire", err, store.ErrBusy)
		testserver.Eventually(t, ttl+soon, "the short reader's hold is dropped", func() bool {
			time.Sleep(50 * time.Millisecond)
			_, err := r.direct.Acquire(t.Context(), next)
			wantIs(t, "acquire", err, store.ErrBusy)
			return r.fields(t, short)["h:"+short.Lease] == ""
		})
		if err := extend(r.direct, long); err != nil {
			t.Errorf("extend: %v", err)
		}
		release(t, r.direct, long)
		acquire(t, r.direct, next)
	})
	t.Run("kept key", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		c.Keep = ttl
		acquire(t, r.direct, c)
		release(t, r.direct, c)
		r.setBack(t, c, hour)
		granted(t, r, claimOf(c.Key), ttl+soon)
	})
	t.Run("dead waiter at the head", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		acquire(t, r.direct, c)
		dead, next := claimOf(c.Key), claimOf(c.Key)
		dead.Fair, dead.Wait, next.Fair = true, true, true
		_, err := r.direct.Acquire(t.Context(), dead)
		wantIs(t, "acquire", err, store.ErrBusy)
		r.setBack(t, c, hour)
		release(t, r.direct, c)
		acquire(t, r.direct, next)
	})
	t.Run("set back by a moment", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		acquire(t, r.direct, c)
		first, next := claimOf(c.Key), claimOf(c.Key)
		first.Fair, first.Wait, next.Fair = true, true, true
		_, err := r.direct.Acquire(t.Context(), first)
		wantIs(t, "acquire", err, store.ErrBusy)
		r.setBack(t, c, time.Second)
		release(t, r.direct, c)
		_, err = r.direct.Acquire(t.Context(), next)
		wantIs(t, "acquire behind the first in line", err, store.ErrBusy)
		acquire(t, r.direct, first)
	})
	t.Run("straggler after its release", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		wantIs(t, "release of an unknown lease", r.direct.Release(t.Context(), c), store.ErrLost)
		r.setBack(t, c, hour)
		for range 2 {
			_, err := r.direct.Acquire(t.Context(), c)
			wantIs(t, "the straggler", err, store.ErrLost)
			release(t, r.direct, func() store.Claim { next := claimOf(c.Key); acquire(t, r.direct, next); return next }())
		}
	})
	t.Run("answer is stored for longer", func(t *testing.T) {
		t.Parallel()
		c := begins(claimed(), "begun")
		acquire(t, r.direct, c)
		release(t, r.direct, saves(c, "answer", 1, true))
		r.setBack(t, c, hour)
		wantRecord(t, acquire(t, r.direct, begins(claimOf(c.Key), "again")), "answer", 1, true)
		if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left < hour {
			t.Errorf("it is kept for %v", left)
		}
	})
}

// TestClockSetBack_LateToken simulates a busy server, which answers the TIME after a
// SET much later than the SET. The token is the answer to the TIME. The next token must
// be higher, although the clock was set back in between (hazard 34).
func TestClockSetBack_LateToken(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	r := newRig(t, testserver.StartRedis(t), nil)
	for name, read := range map[string]bool{"read before": true, "not read before": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := claimed()
			value := fmt.Sprintf("%d %s %s", c.TTL.Milliseconds(), c.Owner, c.Lease)
			if ok, err := r.asks.SetNX(t.Context(), stored(c), value, c.TTL).Result(); !ok || err != nil {
				t.Fatalf("set: got %v and %v", ok, err)
			}
			time.Sleep(20 * time.Millisecond)
			token := uint64(r.asks.Time(t.Context()).Val().UnixMicro())
			if read {
				waits := claimOf(c.Key)
				waits.Wait = true
				busyWith(t, r.direct, waits)
			}
			r.setBack(t, c, hour)
			release(t, r.direct, c)
			if next := acquire(t, r.direct, claimOf(c.Key)); next.Token < token+uint64(hour.Microseconds())+store.TokenStep {
				t.Errorf("got token %d, want %d or more", next.Token, token+uint64(hour.Microseconds())+store.TokenStep)
			}
		})
	}
}

// TestPersistedKey removes a key's expiry, as another client can. The key must still be
// free after its TTL.
func TestPersistedKey(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	c := claimed()
	c.TTL = 5 * time.Second
	acquire(t, r.direct, c)
	if !r.asks.Persist(t.Context(), stored(c)).Val() {
		t.Fatal("test setup: the key had no end")
	}
	granted(t, r, claimOf(c.Key), soon)
}
