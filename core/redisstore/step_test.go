package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestTokens_ClockStandsStill uses a server whose clock almost stands still. The
// clock passes none of a grant's tokens, as if the lock were released within 64 µs. A
// release leaves the tokens, and the next grant has higher tokens (hazard 34).
func TestTokens_ClockStandsStill(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.NewClock(t, 1e-6).StartRedis(), nil)
	waits := func(t *testing.T, c store.Claim, push bool) (w store.Claim, woken <-chan struct{}) {
		t.Helper()
		w = claimOf(c.Key)
		w.Wait, w.Fair, w.Push = true, true, push
		woken = watch(t, r.store, w)
		busyWith(t, r.store, w)
		return w, woken
	}
	for name, deed := range map[string]func(t *testing.T, c store.Claim) (next store.Claim){
		"it is released": func(t *testing.T, c store.Claim) store.Claim {
			release(t, r.direct, c)
			if fields := r.fields(t, c); len(fields) != 1 || fields["t"] == "" {
				t.Errorf("%v is left, want the tokens alone", fields)
			}
			return claimOf(c.Key)
		},
		"it is extended": func(t *testing.T, c store.Claim) store.Claim {
			c.TTL *= 2
			wantIs(t, "extend", extend(r.direct, c), nil)
			release(t, r.direct, c)
			return claimOf(c.Key)
		},
		"it has an inner one": func(t *testing.T, c store.Claim) store.Claim {
			inner := nested(c)
			acquire(t, r.direct, inner)
			release(t, r.direct, inner)
			release(t, r.direct, c)
			return claimOf(c.Key)
		},
		"one asks in vain": func(t *testing.T, c store.Claim) store.Claim {
			busyWith(t, r.direct, claimOf(c.Key))
			release(t, r.direct, c)
			return claimOf(c.Key)
		},
		"one waits": func(t *testing.T, c store.Claim) store.Claim {
			w, woken := waits(t, c, false)
			release(t, r.direct, c)
			wakes(t, woken)
			return w
		},
		"granted by message": func(t *testing.T, c store.Claim) store.Claim {
			w, woken := waits(t, c, true)
			release(t, r.direct, c)
			wakes(t, woken)
			return w
		},
		"granted by message after undo": func(t *testing.T, c store.Claim) store.Claim {
			w, woken := waits(t, c, true)
			c.Undo = true // undo has no shortcut
			release(t, r.direct, c)
			wakes(t, woken)
			return w
		},
		"granted by message after known token": func(t *testing.T, c store.Claim) store.Claim {
			release(t, r.direct, c)
			exact := claimOf(c.Key)
			g := acquire(t, r.direct, exact)
			w, woken := waits(t, exact, true)
			release(t, r.direct, exact)
			wakes(t, woken)
			if got := acquire(t, r.store, w); got.Token < g.Token+store.TokenStep {
				t.Errorf("token %d was granted by message after %d", got.Token, g.Token)
			}
			release(t, r.store, w)
			return claimOf(c.Key)
		},
		"second of two granted by message": func(t *testing.T, c store.Claim) store.Claim {
			first, woken := waits(t, c, true)
			second, next := waits(t, c, true)
			release(t, r.direct, c)
			wakes(t, woken)
			release(t, r.store, first)
			wakes(t, next)
			return second
		},
		"others share the key after it": func(t *testing.T, c store.Claim) store.Claim {
			release(t, r.direct, c)
			for range 2 {
				reader := shared(claimOf(c.Key))
				acquire(t, r.direct, reader)
				release(t, r.direct, reader)
			}
			return claimOf(c.Key)
		},
		"a run follows": func(t *testing.T, c store.Claim) store.Claim {
			release(t, r.direct, c)
			return begins(claimOf(c.Key), "begun")
		},
	} {
		for form, claimed := range forms {
			t.Run(name+" "+form, func(t *testing.T) {
				t.Parallel()
				c := claimed()
				last := acquire(t, r.direct, c).Token
				next := deed(t, c)
				for range 3 {
					g := acquire(t, r.store, next)
					if g.Token < last+store.TokenStep {
						t.Fatalf("got token %d after %d", g.Token, last)
					}
					last = g.Token
					release(t, r.store, next)
					next = claimOf(c.Key)
				}
			})
		}
	}
	t.Run("an answer is saved", func(t *testing.T) {
		t.Parallel()
		c := begins(claimed(), "begun")
		last := acquire(t, r.direct, c).Token
		release(t, r.direct, saves(c, "answer", 1, true))
		if next := acquire(t, r.direct, claimOf(c.Key)); next.Token < last+store.TokenStep {
			t.Errorf("got token %d after %d", next.Token, last)
		}
	})
}

// TestTokens_Restart checks that the tokens of a key are also saved to the server's
// disk (hazard 34).
func TestTokens_Restart(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	s := newStore(t, testclient.Redis(t, server.Addr))
	ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
	held, over := claimOf("held"), claimOf("over")
	held.MinToken, over.MinToken = ahead, ahead
	acquire(t, s, held)
	acquire(t, s, over)
	release(t, s, over)
	server.Kill()
	server.Restart()
	again := func(c store.Claim) (g store.Grant) {
		t.Helper()
		testserver.Eventually(t, soon, "a grant", func() bool { // on a new connection
			var err error
			g, err = s.Acquire(t.Context(), c)
			return err == nil
		})
		return g
	}
	if g := again(held); g.Token != ahead {
		t.Errorf("the hold has token %d, want %d", g.Token, ahead)
	}
	release(t, s, held)
	for _, key := range []string{"held", "over"} {
		if g := again(claimOf(key)); g.Token < ahead+store.TokenStep {
			t.Errorf("%s: got token %d after %d", key, g.Token, ahead)
		}
	}
}

// TestRelease_NoLock checks that a string without the three words of a lock is
// not a lock, even if it ends with the lease.
func TestRelease_NoLock(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	for _, value := range []string{" ", "f ", "text ", strings.Repeat("9", 20) + " "} {
		c := claimed()
		if err := r.asks.Set(t.Context(), stored(c), value+c.Lease, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if err := r.direct.Release(t.Context(), c); err == nil {
			t.Errorf("%q: released", value)
		}
		if got := r.asks.Get(t.Context(), stored(c)).Val(); got != value+c.Lease {
			t.Errorf("%q has become %q", value, got)
		}
	}
}
