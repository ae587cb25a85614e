package zkstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
)

// TestUnusableClaims checks that invalid and unsupported claims are refused before
// anything is sent.
func TestUnusableClaims(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	proxy := testserver.NewZooKeeperProxy(t, server)
	s, _ := storeOn(t, session, []string{proxy.Addr})
	for name, c := range map[string]struct {
		change func(c *store.Claim)
		want   error
		always bool // refused by every call, not only by Acquire
	}{
		"no key":                      {func(c *store.Claim) { c.Key = "" }, store.ErrInvalid, true},
		"a key that is too long":      {func(c *store.Claim) { c.Key = strings.Repeat("k", 513) }, store.ErrInvalid, true},
		"a key with a brace":          {func(c *store.Claim) { c.Key = "a{b" }, store.ErrInvalid, true},
		"a key with a control code":   {func(c *store.Claim) { c.Key = "a\x00b" }, store.ErrInvalid, true},
		"a key that is no UTF-8":      {func(c *store.Claim) { c.Key = "a\xff" }, store.ErrInvalid, true},
		"no owner":                    {func(c *store.Claim) { c.Owner = "" }, store.ErrInvalid, true},
		"no lease":                    {func(c *store.Claim) { c.Lease = "" }, store.ErrInvalid, true},
		"no weight":                   {func(c *store.Claim) { c.Weight = 0 }, store.ErrInvalid, false},
		"a weight that makes room":    {func(c *store.Claim) { c.Weight = -1 }, store.ErrInvalid, false},
		"more than there is":          {func(c *store.Claim) { c.Limit = c.Weight - 1 }, store.ErrInvalid, false},
		"more than all":               {func(c *store.Claim) { c.Limit = store.All + 1 }, store.ErrInvalid, false},
		"no time":                     {func(c *store.Claim) { c.TTL = 0 }, store.ErrInvalid, false},
		"a token beyond all counting": {func(c *store.Claim) { c.MinToken = 1 << 63 }, store.ErrInvalid, false},
		"token of a shared claim":     {func(c *store.Claim) { c.MinToken, c.Weight = 1, 1 }, store.ErrUnsupported, false},
		"TTL below the least":         {func(c *store.Claim) { c.TTL = time.Microsecond }, store.ErrInvalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			claim := exclusive("usable")
			c.change(&claim)
			if _, err := s.Acquire(t.Context(), claim); !errors.Is(err, c.want) {
				t.Errorf("acquire: got %v, want %v", err, c.want)
			}
			if !c.always {
				return
			}
			if x := s.Extend(t.Context(), []store.Claim{claim}); len(x) != 1 || !errors.Is(x[0].Err, c.want) {
				t.Errorf("extend: got %v, want %v", x, c.want)
			}
			if err := s.Release(t.Context(), claim); !errors.Is(err, c.want) {
				t.Errorf("release: got %v, want %v", err, c.want)
			}
			if _, err := s.Watch(t.Context(), claim); !errors.Is(err, c.want) {
				t.Errorf("watch: got %v, want %v", err, c.want)
			}
		})
	}
	if sent := ops(proxy.Requests()); len(sent) > 0 {
		t.Errorf("the server was sent %v", sent)
	}
}

// TestWaiters_ShareAWatch lets many callers wait for a held key and leave. The client
// cannot cancel a watch. So the waiters must share one watch, or watches would
// accumulate until the holder releases.
func TestWaiters_ShareAWatch(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	holder, _ := storeOn(t, session, []string{server})
	proxy := testserver.NewZooKeeperProxy(t, server)
	s, _ := storeOn(t, session, []string{proxy.Addr})
	h := exclusive("long")
	grant(t, holder, h)
	proxy.Forget()
	const n = 20
	for range n {
		w := waiting("long")
		busy(t, s, w)
		if err := s.Release(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	watched := 0
	for _, r := range proxy.Requests() {
		if strings.HasPrefix(r.Path, "/lk1/long/h.") && r.Name == "getChildren" {
			watched++
		}
	}
	if watched != 1 {
		t.Errorf("%d waiters set %d watches on the holder's node, want one", n, watched)
	}
	// The next waiter is still woken.
	w := waiting("long")
	busy(t, s, w)
	woken, err := s.Watch(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Release(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	select {
	case <-woken:
	case <-time.After(patience):
		t.Error("was not woken")
	}
	grant(t, s, w)
}
