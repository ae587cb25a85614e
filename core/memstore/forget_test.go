package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/store"
)

func claim(key, lease string) store.Claim {
	return store.Claim{
		Key: key, Owner: lease, Lease: lease,
		Weight: store.All, Limit: store.All, TTL: time.Second,
	}
}

// inBubble runs fn in virtual time, with an empty store.
func inBubble(t *testing.T, fn func(t *testing.T, s *memstore.Store)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { fn(t, memstore.New()) })
}

func acquire(t *testing.T, s *memstore.Store, c store.Claim) store.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestStore_Forgets(t *testing.T) {
	t.Parallel()
	t.Run("released key", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *memstore.Store) {
			c := claim("key", "a")
			acquire(t, s, c)
			time.Sleep(time.Millisecond) // until the clock has passed the tokens
			if err := s.Release(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if keys, _ := s.Size(); keys != 0 {
				t.Errorf("%d keys are left", keys)
			}
		})
	})
	t.Run("keys left alone", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *memstore.Store) {
			most := 0
			for i := range 20_000 {
				acquire(t, s, claim(fmt.Sprint("key ", i), "a"))
				time.Sleep(10 * time.Millisecond) // so that about a hundred keys are live
				keys, _ := s.Size()
				most = max(most, keys)
			}
			if most > 500 {
				t.Errorf("kept up to %d keys, of which a hundred were live", most)
			}
		})
	})
	// Keys that were only extended or released, without a hold, are forgotten.
	t.Run("keys without a hold", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *memstore.Store) {
			for i := range 2_000 {
				c := claim(fmt.Sprint("key ", i), "a")
				c.TTL = time.Millisecond
				if x := s.Extend(t.Context(), []store.Claim{c}); !errors.Is(x[0].Err, store.ErrLost) {
					t.Fatal(x[0].Err)
				}
				if err := s.Release(t.Context(), c); !errors.Is(err, store.ErrLost) {
					t.Fatal(err)
				}
				time.Sleep(time.Millisecond)
			}
			if keys, _ := s.Size(); keys > 500 {
				t.Errorf("%d keys are left", keys)
			}
		})
	})
	// A key is forgotten only after the clock has passed its last token.
	t.Run("token ahead of the clock", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *memstore.Store) {
			c := claim("key", "a")
			c.MinToken = uint64(time.Now().Add(time.Hour).UnixMicro())
			g := acquire(t, s, c)
			time.Sleep(30 * time.Minute)
			if next := acquire(t, s, claim("key", "b")); next.Token <= g.Token {
				t.Errorf("got token %d after %d", next.Token, g.Token)
			}
			time.Sleep(time.Hour)
			if err := s.Release(t.Context(), claim("another key", "c")); !errors.Is(err, store.ErrLost) {
				t.Fatal(err)
			}
			if next := acquire(t, s, claim("key", "d")); next.Token <= g.Token {
				t.Errorf("got token %d after %d", next.Token, g.Token)
			}
		})
	})
	t.Run("watches that are done", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *memstore.Store) {
			ctx, cancel := context.WithCancel(t.Context())
			for i := range 100 {
				for range 2 {
					if _, err := s.Watch(ctx, claim("key", fmt.Sprint(i))); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, watches := s.Size(); watches != 100 {
				t.Errorf("%d claims are watched, want 100", watches)
			}
			cancel()
			synctest.Wait()
			if _, watches := s.Size(); watches != 0 {
				t.Errorf("%d claims are still watched", watches)
			}
		})
	})
}

func TestStore_InvalidClaims(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	for name, change := range map[string]func(c *store.Claim){
		"no key":             func(c *store.Claim) { c.Key = "" },
		"no owner":           func(c *store.Claim) { c.Owner = "" },
		"no lease":           func(c *store.Claim) { c.Lease = "" },
		"no weight":          func(c *store.Claim) { c.Weight = 0 },
		"a negative weight":  func(c *store.Claim) { c.Weight = -1 },
		"weight above limit": func(c *store.Claim) { c.Limit = 1 },
		"no TTL":             func(c *store.Claim) { c.TTL = 0 },
		"less than the tick": func(c *store.Claim) { c.TTL = time.Microsecond },
		"a negative TTL":     func(c *store.Claim) { c.TTL = -time.Second },
		"a token too high":   func(c *store.Claim) { c.MinToken = 1<<52 + 1 },
	} {
		c := claim("key", "a")
		change(&c)
		if _, err := s.Acquire(t.Context(), c); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: acquire: got %v, want %v", name, err, store.ErrInvalid)
		}
	}
	c := claim("key", "a")
	c.Weight, c.MinToken = 1, 1
	if _, err := s.Acquire(t.Context(), c); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("a token for a reader: got %v, want %v", err, store.ErrUnsupported)
	}
	if keys, _ := s.Size(); keys != 0 {
		t.Errorf("%d keys were left behind", keys)
	}
}

func TestStore_CanceledContext(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	held := claim("key", "held")
	acquire(t, s, held)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("no longer wanted")
	cancel(cause)
	check := func(op string, err error) {
		t.Helper()
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, cause) {
			t.Errorf("%s: got %v, want %v and the context's cause", op, err, store.ErrUnavailable)
		}
	}
	_, err := s.Acquire(ctx, claim("free", "a"))
	check("acquire", err)
	check("extend", s.Extend(ctx, []store.Claim{held})[0].Err)
	check("release", s.Release(ctx, held))
	_, err = s.Watch(ctx, held)
	check("watch", err)
	if err := s.Release(t.Context(), held); err != nil {
		t.Errorf("the hold is gone: %v", err)
	}
}
