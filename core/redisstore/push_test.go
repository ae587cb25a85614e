package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// inPlace returns a claim that waits for c's key and watches.
func inPlace(t testing.TB, s *redisstore.Store, c store.Claim, edit ...func(*store.Claim)) (store.Claim, <-chan struct{}) {
	t.Helper()
	w := claimOf(c.Key)
	w.Wait, w.Push, w.TTL = true, true, 30*time.Second
	for _, e := range edit {
		e(&w)
	}
	ch := watch(t, s, w)
	if _, err := s.Acquire(context.Background(), w); !errors.Is(err, store.ErrBusy) {
		t.Fatalf("acquire: got %v, want busy", err)
	}
	return w, ch
}

func busyWith(t testing.TB, s *redisstore.Store, c store.Claim) {
	t.Helper()
	if _, err := s.Acquire(context.Background(), c); !errors.Is(err, store.ErrBusy) {
		t.Fatalf("acquire: got %v, want busy", err)
	}
}

// promptly runs a scene, and repeats it at most twice if the release's grant was too
// old. On a busy machine this can occur. The last run counts.
func promptly(scene func(last bool) (took time.Duration)) {
	for n := range 3 {
		if scene(n == 2) <= prompt {
			return
		}
	}
}

const prompt = 500 * time.Millisecond

// TestPush checks that a release grants the key to the first waiter that listens, and
// sends the grant in a message.
func TestPush(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	handedOver(t, r.direct, r.store)
	t.Run("waiter has the key without asking", func(t *testing.T) {
		for _, fair := range []bool{false, true} {
			promptly(func(last bool) time.Duration {
				c := claimed()
				before := acquire(t, r.direct, c).Token
				start := time.Now()
				w, ch := inPlace(t, r.store, c, func(w *store.Claim) { w.Fair = fair })
				release(t, r.direct, c)
				busyWith(t, r.direct, claimOf(c.Key))
				wakes(t, ch)
				r.proxy.Forget()
				g := acquire(t, r.store, w)
				n, took := len(r.proxy.Requests()), time.Since(start)
				if took > prompt && !last {
					return took
				}
				if n != 0 {
					t.Errorf("%d commands, want none", n)
				}
				if g.Token <= before || g.Owner != w.Owner || g.Valid <= 0 || g.Valid > 2*time.Second {
					t.Errorf("got %+v after token %d", g, before)
				}
				if again := acquire(t, r.store, w); again.Token <= before || again.Valid != 0 {
					t.Errorf("got %+v, then %+v", g, again)
				}
				if err := extend(r.store, w); err != nil {
					t.Error(err)
				}
				release(t, r.store, w)
				acquire(t, r.direct, claimOf(c.Key))
				return took
			})
		}
	})
	t.Run("validity ends with the key", func(t *testing.T) {
		c := claimed()
		acquire(t, r.direct, c)
		w, ch := inPlace(t, r.store, c)
		time.Sleep(700 * time.Millisecond) // so the place has an age
		release(t, r.direct, c)
		wakes(t, ch)
		g := acquire(t, r.store, w)
		before := time.Now()
		next := claimOf(c.Key)
		testserver.Eventually(t, soon, "the key is free again", func() bool {
			_, err := r.direct.Acquire(t.Context(), next)
			return err == nil
		})
		if took := time.Since(before); took < g.Valid-10*time.Millisecond {
			t.Errorf("valid for %v, and free after %v", g.Valid, took)
		}
	})
	t.Run("dead waiter", func(t *testing.T) {
		c := claimed()
		acquire(t, r.direct, c)
		inPlace(t, r.store, c)
		release(t, r.direct, c)
		start := time.Now()
		next := claimOf(c.Key)
		testserver.Eventually(t, soon, "the key is free again", func() bool {
			_, err := r.direct.Acquire(t.Context(), next)
			return err == nil
		})
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("that took %v", took)
		}
	})
	t.Run("leaving waiter passes the key on", func(t *testing.T) {
		c := claimed()
		acquire(t, r.direct, c)
		w, ch := inPlace(t, r.store, c)
		second, ch2 := inPlace(t, r.direct, c)
		release(t, r.direct, c)
		wakes(t, ch)
		release(t, r.store, w)
		wakes(t, ch2)
		acquire(t, r.direct, second)
	})
	t.Run("message about an earlier place", func(t *testing.T) {
		channels := r.asks.PubSubChannels(t.Context(), "lk2:wake:*").Val()
		c := claimed()
		acquire(t, r.direct, c)
		w, ch := inPlace(t, r.store, c)
		place := strings.Fields(r.fields(t, c)["w"])[1]
		time.Sleep(5 * time.Millisecond)
		busyWith(t, r.store, w) // gets a new place
		for _, grant := range []string{place + " 9 5000", "1 9 5000", place, "", " ", place + " x 5000", place + " 9 -1", place + " 9 5000 1"} {
			for _, channel := range channels {
				if err := r.asks.Publish(t.Context(), channel, fmt.Sprintf("%s %s\n%s", stored(c), w.Lease, grant)).Err(); err != nil {
					t.Fatal(err)
				}
			}
			wakes(t, ch)
			busyWith(t, r.store, w)
		}
	})
	t.Run("late message", func(t *testing.T) {
		c := claimed()
		acquire(t, r.direct, c)
		w, ch := inPlace(t, r.store, c)
		release(t, r.direct, c)
		wakes(t, ch)
		time.Sleep(4 * time.Second)
		next := claimOf(c.Key)
		acquire(t, r.direct, next)
		busyWith(t, r.store, w)
	})
	t.Run("readers in line are granted together", func(t *testing.T) {
		promptly(func(last bool) time.Duration {
			c := claimed()
			acquire(t, r.direct, c)
			reader := func(w *store.Claim) { w.Weight = 1 }
			a, chA := inPlace(t, r.store, c, reader)
			b, chB := inPlace(t, r.direct, c, reader)
			x, _ := inPlace(t, r.direct, c)
			start := time.Now()
			release(t, r.direct, c)
			wakes(t, chA)
			wakes(t, chB)
			grants := []store.Grant{acquire(t, r.store, a), acquire(t, r.direct, b)}
			took := time.Since(start)
			if took > prompt && !last {
				return took
			}
			for _, g := range grants {
				if g.Token != 0 || g.Valid == 0 {
					t.Errorf("got %+v", g)
				}
			}
			busyWith(t, r.direct, x)
			return took
		})
	})
	t.Run("short lease or run", func(t *testing.T) {
		for _, edit := range []func(*store.Claim){
			func(w *store.Claim) { w.TTL = 5 * time.Second },
			func(w *store.Claim) { w.Record = &store.Record{Retain: time.Minute} },
			func(w *store.Claim) { w.Via = "somebody" },
		} {
			c := claimed()
			acquire(t, r.direct, c)
			w, ch := inPlace(t, r.store, c, edit)
			release(t, r.direct, c)
			wakes(t, ch)
			if g := acquire(t, r.store, w); g.Valid != 0 {
				t.Errorf("got %+v", g)
			}
		}
	})
}

// TestUnheardGrant checks that a grant that no process receives is undone, and leaves
// nothing that excludes a claim.
func TestUnheardGrant(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	mute := newStore(t, testclient.Redis(t, r.server.Addr, lacking(t, r.server, "publish")))
	permit := func(c *store.Claim) { c.Weight, c.Limit = 1, 1 }
	for _, tt := range []struct {
		name string
		edit func(*store.Claim)
	}{
		{"one permit", permit},
		{"whole key", func(*store.Claim) {}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := claimed()
			tt.edit(&c)
			acquire(t, r.direct, c)
			inPlace(t, r.direct, c, tt.edit)
			release(t, mute, c)
			// Tokens can keep the key for the rest of a millisecond.
			if left := r.asks.PTTL(t.Context(), stored(c)).Val(); left > time.Second {
				t.Errorf("got %v left to the key, want none: %v", left, r.asks.Get(t.Context(), stored(c)))
			}
			if state, err := mute.Look(t.Context(), c.Key); err != nil || len(state.Holds) > 0 {
				t.Errorf("got %+v, %v, want no hold", state, err)
			}
			next := claimOf(c.Key)
			tt.edit(&next)
			acquire(t, mute, next)
		})
	}
	t.Run("nothing but the form", func(t *testing.T) {
		c := claimed()
		permit(&c)
		empty := func() {
			if err := r.asks.Set(t.Context(), stored(c), "f", time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
		}
		empty()
		if state, err := mute.Look(t.Context(), c.Key); err != nil || len(state.Holds) > 0 {
			t.Errorf("got %+v, %v, want no hold", state, err)
		}
		wantIs(t, "extend", extend(mute, c), store.ErrLost)
		acquire(t, mute, c)
		release(t, mute, c)
		empty()
		wantIs(t, "release", mute.Release(t.Context(), c), store.ErrLost)
	})
}

// TestPushToVeryMany checks that one step admits a limited number of waiters. A script
// accepts a limited number of arguments, and blocks the server while it runs.
func TestPushToVeryMany(t *testing.T) {
	t.Parallel()
	r := newRig(t, testserver.StartRedis(t), nil)
	c := claimed()
	acquire(t, r.direct, c)
	w, ch := inPlace(t, r.direct, c, func(w *store.Claim) { w.Weight = 1 })
	// This simulates three thousand processes that have taken their places at once.
	first := strings.TrimPrefix(r.fields(t, c)["w"], "\n")
	all := "\n" + first
	for i := range 3000 {
		all += strings.NewReplacer(w.Lease, fmt.Sprint("lease-", i), w.Owner, fmt.Sprint("owner-", i)).Replace(first)
	}
	// On a busy machine, creating the places can take longer than their lifetime.
	until := strconv.FormatInt(time.Now().Add(store.WaiterLife).UnixMilli(), 10)
	all = strings.ReplaceAll(all, strings.Fields(first)[1], until)
	if err := testclient.SetField(t.Context(), r.asks, stored(c), "w", all); err != nil {
		t.Fatal(err)
	}
	release(t, r.direct, c)
	wakes(t, ch)
	acquire(t, r.direct, w)
	if n := len(r.fields(t, c)); n > 250 {
		t.Errorf("%d fields, which are nearly all holds", n)
	}
}
