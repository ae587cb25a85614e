package zkstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/testserver"
)

// Claims that make no sense are refused before anything is sent.
func TestUnusableClaims(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	proxy := testserver.NewZooKeeperProxy(t, server)
	s, _ := storeOn(t, session, []string{proxy.Addr})
	for name, c := range map[string]struct {
		change func(c *core.Claim)
		want   error
		always bool // in every call
	}{
		"no key":                      {func(c *core.Claim) { c.Key = "" }, core.ErrInvalid, true},
		"a key that is too long":      {func(c *core.Claim) { c.Key = strings.Repeat("k", 513) }, core.ErrInvalid, true},
		"a key with a brace":          {func(c *core.Claim) { c.Key = "a{b" }, core.ErrInvalid, true},
		"a key with a control code":   {func(c *core.Claim) { c.Key = "a\x00b" }, core.ErrInvalid, true},
		"a key that is no UTF-8":      {func(c *core.Claim) { c.Key = "a\xff" }, core.ErrInvalid, true},
		"no owner":                    {func(c *core.Claim) { c.Owner = "" }, core.ErrInvalid, true},
		"no lease":                    {func(c *core.Claim) { c.Lease = "" }, core.ErrInvalid, true},
		"no weight":                   {func(c *core.Claim) { c.Weight = 0 }, core.ErrInvalid, false},
		"a weight that makes room":    {func(c *core.Claim) { c.Weight = -1 }, core.ErrInvalid, false},
		"more than there is":          {func(c *core.Claim) { c.Limit = c.Weight - 1 }, core.ErrInvalid, false},
		"more than all":               {func(c *core.Claim) { c.Limit = core.All + 1 }, core.ErrInvalid, false},
		"no time":                     {func(c *core.Claim) { c.TTL = 0 }, core.ErrInvalid, false},
		"a token beyond all counting": {func(c *core.Claim) { c.MinToken = 1 << 63 }, core.ErrInvalid, false},
		"a token for a claim that is not exclusive": {func(c *core.Claim) { c.MinToken, c.Weight = 1, 1 }, core.ErrUnsupported, false},
		"a TTL of less than can be told":            {func(c *core.Claim) { c.TTL = time.Microsecond }, core.ErrInvalid, false},
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
			if x := s.Extend(t.Context(), []core.Claim{claim}); len(x) != 1 || !errors.Is(x[0].Err, c.want) {
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

// While a key is held for long, many come to wait for it and go again. The client
// cannot take a watch back, so they share one, or they would pile up until the
// holder leaves.
func TestWaitersThatGoShareAWatch(t *testing.T) {
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
	// And the next waiter is still woken.
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
