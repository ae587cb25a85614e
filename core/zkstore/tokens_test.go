package zkstore_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/zkstore"
)

// TestTokensOfNodes checks that the tokens of a node's grant are below 2^53, or that
// the grant has no token (hazard 34).
func TestTokensOfNodes(t *testing.T) {
	t.Parallel()
	at := func(elections, since int64) int64 { return elections<<32 | since }
	const last = 1<<53 - store.TokenStep
	for _, c := range []struct {
		name       string
		zxid, plus int64
		want       uint64
	}{
		{"the first", 1, 0, store.TokenStep},
		{"the next", 2, 0, 2 * store.TokenStep},
		{"with what is added", 2, 7, 2*store.TokenStep + 7},
		{"after an election", at(1, 1), 0, (1<<32 + 1) * store.TokenStep},
		{"the last election with tokens", at(1<<15-1, 0), 0, (1<<15 - 1) << 32 * store.TokenStep},
		{"the last node with tokens", at(1<<15-1, math.MaxUint32), 0, last},
		{"last node and an addition", at(1<<15-1, math.MaxUint32), 1, 0},
		{"one election more", at(1<<15, 0), 0, 0},
		{"as many as can be", math.MaxInt64, 0, 0},
		{"addition up to the end", 1, last - store.TokenStep, last},
		{"more than that", 1, last - store.TokenStep + 1, 0},
	} {
		if got := zkstore.Token(c.zxid, c.plus); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

// TestTokens_Restart checks that tokens grow across a restart of the server.
func TestTokens_Restart(t *testing.T) {
	t.Parallel()
	server := testserver.StartZooKeeper(t)
	proxy := testserver.NewZooKeeperProxy(t, server.Addr) // see TestZooKeeper of testserver
	s, _ := storeOn(t, session, []string{proxy.Addr})
	tokens := make(map[string]uint64)
	for key, plus := range map[string]uint64{"usual": 0, "ahead": 1 << 40} {
		c := exclusive(key)
		c.MinToken = plus
		tokens[key] = grant(t, s, c).Token
		if err := s.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Down()
	server.Kill()
	server.Restart()
	proxy.Up()
	for key, last := range tokens {
		c := exclusive(key)
		var g store.Grant
		eventually(t, "the server is back", func() (ok bool) {
			var err error
			g, err = s.Acquire(t.Context(), c)
			if err != nil && !errors.Is(err, store.ErrUnavailable) {
				_ = s.Release(t.Context(), c) // the outcome may be unknown
			}
			return err == nil
		})
		if g.Token < last+store.TokenStep {
			t.Errorf("%s: got token %d after %d", key, g.Token, last)
		}
	}
}

// TestTokens_NoneLeft exhausts the tokens below 2^53. Then claims are granted without a
// token, and claims that require one are refused.
func TestTokens_NoneLeft(t *testing.T) {
	t.Parallel()
	server := testserver.SharedZooKeeper(t)
	s, conn := storeOn(t, session, []string{server})
	first := exclusive("spent")
	grant(t, s, first)
	// With this addition no token is below 2^53. The hold keeps its parent, which is
	// removed when it is empty.
	if _, err := conn.Create("/lk1/spent/m.2gosa7pa2gw", nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	c := exclusive("spent")
	if g := grant(t, s, c); g.Token != 0 {
		t.Errorf("got token %d", g.Token)
	}
	busy(t, s, exclusive("spent"))
	fenced := c
	fenced.MinToken = 1
	if _, err := s.Acquire(t.Context(), fenced); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("the same with a token: got %v, want %v", err, store.ErrUnsupported)
	}
	if err := s.Release(t.Context(), c); err != nil {
		t.Errorf("the hold is gone: %v", err)
	}
	fenced = exclusive("spent")
	fenced.MinToken, fenced.TTL = 1, time.Minute
	if _, err := s.Acquire(t.Context(), fenced); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("with a token: got %v, want %v", err, store.ErrUnsupported)
	}
	grant(t, s, exclusive("spent")) // the refused claim has left nothing
}
