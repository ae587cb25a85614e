package redisstore_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestToken_OutlivesItsHold checks that the key remembers the token of a released or
// expired hold, although the server's clock was set back (hazard 34). Most cases begin
// with a hold whose token is stored only with the hold, and is an hour ahead of the
// clock. They leave the key free, or free in a moment.
func TestToken_OutlivesItsHold(t *testing.T) {
	t.Parallel()
	const hour, ttl = time.Hour, 5 * time.Second
	r := newRig(t, testserver.StartRedis(t), nil)
	t.Cleanup(func() { everyKeyExpires(t, r.server) })
	longer := func(t *testing.T, c store.Claim, by int) {
		t.Helper()
		c.TTL *= time.Duration(by) // otherwise there is nothing to write
		if err := extend(r.direct, c); err != nil {
			t.Fatalf("extend: %v", err)
		}
	}
	waits := func(t *testing.T, c store.Claim) store.Claim {
		t.Helper()
		w := claimOf(c.Key)
		w.Wait, w.Fair = true, true
		busyWith(t, r.direct, w)
		return w
	}
	begun := func(c store.Claim) store.Claim { return begins(c, "begun") }
	for name, one := range map[string]struct {
		edit func(store.Claim) store.Claim // changes the first claim
		deed func(t *testing.T, c store.Claim)
	}{
		"it is released": {deed: func(t *testing.T, c store.Claim) {
			release(t, r.direct, c)
		}},
		"it is extended": {deed: func(t *testing.T, c store.Claim) {
			longer(t, c, 2)
			release(t, r.direct, c)
		}},
		"it is extended twice": {deed: func(t *testing.T, c store.Claim) {
			longer(t, c, 2)
			longer(t, c, 3)
			release(t, r.direct, c)
		}},
		"it is extended and expires": {
			edit: func(c store.Claim) store.Claim {
				c.TTL = ttl
				return c
			},
			deed: func(t *testing.T, c store.Claim) {
				for range 2 {
					c.TTL += time.Millisecond
					if err := extend(r.direct, c); err != nil {
						t.Fatalf("extend: %v", err)
					}
				}
				time.Sleep(c.TTL)
			},
		},
		"it is asked for again": {deed: func(t *testing.T, c store.Claim) {
			acquire(t, r.direct, c)
			release(t, r.direct, c)
		}},
		"the inner one is released first": {deed: func(t *testing.T, c store.Claim) {
			inner := nested(c)
			acquire(t, r.direct, inner)
			release(t, r.direct, inner)
			release(t, r.direct, c)
		}},
		"the outer one is released first": {deed: func(t *testing.T, c store.Claim) {
			inner := nested(c)
			acquire(t, r.direct, inner)
			release(t, r.direct, c)
			release(t, r.direct, inner)
		}},
		"the inner one is shared": {deed: func(t *testing.T, c store.Claim) {
			inner := shared(nested(c))
			acquire(t, r.direct, inner)
			release(t, r.direct, c)
			release(t, r.direct, inner)
		}},
		"one waits while it is released": {deed: func(t *testing.T, c store.Claim) {
			w := waits(t, c)
			release(t, r.direct, c)
			release(t, r.direct, w)
		}},
		"one waits until it expires": {
			edit: func(c store.Claim) store.Claim {
				c.TTL = ttl
				return c
			},
			deed: func(t *testing.T, c store.Claim) {
				w := waits(t, c)
				time.Sleep(ttl)
				release(t, r.direct, w)
			},
		},
		"another one is refused early": {deed: func(t *testing.T, c store.Claim) {
			wantIs(t, "release", r.direct.Release(t.Context(), claimOf(c.Key)), store.ErrLost)
			release(t, r.direct, c)
		}},
		"the key stays for a moment": {deed: func(t *testing.T, c store.Claim) {
			c.Keep = 50 * time.Millisecond
			release(t, r.direct, c)
		}},
		"an answer is saved": {edit: begun, deed: func(t *testing.T, c store.Claim) {
			release(t, r.direct, saves(c, "answer", 1, true))
		}},
		"its run is undone": {edit: begun, deed: func(t *testing.T, c store.Claim) {
			release(t, r.direct, undoes(c))
		}},
		"others share the key after it": {deed: func(t *testing.T, c store.Claim) {
			release(t, r.direct, c)
			for range 2 {
				next := shared(claimOf(c.Key))
				acquire(t, r.direct, next)
				release(t, r.direct, next)
			}
		}},
	} {
		for form, claimed := range forms {
			t.Run(name+" "+form, func(t *testing.T) {
				t.Parallel()
				c := claimed()
				if one.edit != nil {
					c = one.edit(c)
				}
				before := acquire(t, r.direct, c)
				r.setBack(t, c, hour)
				floor := before.Token + uint64(hour.Microseconds())
				c.Last = floor + store.TokenStep - 1 // the holder reports it in its release
				if c.TTL == ttl {
					floor = min(floor, last(r.fields(t, c))) - near // as far as the server knows
				}
				one.deed(t, c)
				after := granted(t, r, claimOf(c.Key), ttl+soon)
				if after.Token < floor+store.TokenStep {
					t.Errorf("the token is %d after %d", after.Token, floor)
				}
			})
		}
	}
	t.Run("clock set back after saved answer", func(t *testing.T) {
		t.Parallel()
		c := begun(claimed())
		before := acquire(t, r.direct, c)
		c.Last = before.Token
		time.Sleep(time.Millisecond) // the clock passes the tokens of the grant
		release(t, r.direct, saves(c, "answer", 1, true))
		r.setBack(t, c, hour)
		after := acquire(t, r.direct, claimOf(c.Key))
		if floor := before.Token + uint64(hour.Microseconds()); after.Token < floor+store.TokenStep {
			t.Errorf("the token is %d after %d", after.Token, floor)
		}
	})
	t.Run("inner one has a higher token", func(t *testing.T) {
		t.Parallel()
		c := claimed()
		acquire(t, r.direct, c)
		inner := nested(c)
		inner.MinToken = uint64(time.Now().Add(hour).UnixMicro())
		if g := acquire(t, r.direct, inner); g.Token < inner.MinToken {
			t.Fatalf("test setup: the token is %d, want %d", g.Token, inner.MinToken)
		}
		longer(t, c, 2)
		release(t, r.direct, inner)
		release(t, r.direct, c)
		if after := acquire(t, r.direct, claimOf(c.Key)); after.Token < inner.MinToken+store.TokenStep {
			t.Errorf("the token is %d after %d", after.Token, inner.MinToken)
		}
	})
}

// TestEndedHold checks that the shortcuts of a release test whether the hold has
// expired. Its key can live longer. The exception is a string that was never extended,
// because its key expires with the hold.
func TestEndedHold(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	for name, deed := range map[string]func(c *store.Claim){
		"extended hold":        func(*store.Claim) {},
		"next token":           func(c *store.Claim) { c.MinToken = 2 },
		"shared key":           func(c *store.Claim) { c.Weight = 1 },
		"beside its token":     func(c *store.Claim) { c.MinToken = uint64(time.Now().Add(20 * time.Millisecond).UnixMicro()) },
		"of a run":             func(c *store.Claim) { *c = begins(*c, "begun") },
		"kept record of a run": func(c *store.Claim) { *c = begins(*c, "begun"); c.Keep = time.Minute },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := claimed()
			c.TTL = 5 * time.Second
			deed(&c)
			c.Last = acquire(t, r.direct, c).Token
			c.TTL += time.Millisecond // so that there is something to extend
			if err := extend(r.direct, c); err != nil {
				t.Fatalf("extend: %v", err)
			}
			if ok, err := r.asks.PExpire(t.Context(), stored(c), time.Minute).Result(); !ok || err != nil {
				t.Fatalf("test setup: nothing is stored (%v)", err)
			}
			time.Sleep(c.TTL + 100*time.Millisecond)
			c.Record = nil // a record would still be saved
			wantIs(t, "release", r.direct.Release(t.Context(), c), store.ErrLost)
		})
	}
}

// TestTime_Refused uses a server that refuses TIME but runs scripts, as behind some
// proxies. A script acquires the lock in the same call. The next acquire begins with
// the script.
func TestTime_Refused(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	r.proxy.Inject(testserver.Match{Command: "time", Times: -1}, testserver.ErrorReply("ERR unknown command 'time'"))
	c, last := claimed(), uint64(0)
	for n := range 3 {
		c.Lease = rand.Text()
		g := acquire(t, r.store, c)
		if c.Last = g.Token; g.Token <= last {
			t.Errorf("token %d after %d", g.Token, last)
		}
		last = g.Token
		if n == 1 {
			r.proxy.Forget()
		}
		release(t, r.store, c)
	}
	if sets := r.proxy.Count(testserver.Match{Command: "set"}); sets != 1 {
		t.Errorf("the third acquire sent %d SETs, want one, as the key was free the last time", sets)
	}
}
