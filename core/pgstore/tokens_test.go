package pgstore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestTokens checks that the tokens of a key grow, even if rows are deleted, tokens are
// lost, or the server is killed.
func TestTokens(t *testing.T) {
	server := start(t)
	pool := testclient.Postgres(t, server.URL())
	s := newStore(t, pool)
	grow := func(t *testing.T, key string, last uint64, between func()) {
		t.Helper()
		for range tally.Trials(50) {
			c := exclusive(key)
			var g store.Grant
			err := unlocked(func() (err error) {
				g, err = s.Acquire(t.Context(), c)
				return err
			})
			if err != nil || last > 0 && g.Token < last+store.TokenStep {
				t.Errorf("got token %d after %d, and %v", g.Token, last, err)
				return
			}
			last = g.Token
			if err := unlocked(func() error { return s.Release(t.Context(), c) }); err != nil {
				t.Error(err)
			}
			between()
		}
	}
	expire := func() { exec(t, pool, sweepAll) }

	// Rows are deleted, and the clock is behind the tokens (hazard 34).
	t.Run("deleted rows", func(t *testing.T) {
		c := exclusive("swept")
		// This is as if the clock had been set back by a day.
		c.MinToken = uint64(time.Now().Add(24 * time.Hour).UnixMicro())
		g := acquire(t, s, c)
		release(t, s, c)
		grow(t, "swept", g.Token, func() {
			expire()
			if n := server.Exec("SELECT count(*) FROM lockkit.locks WHERE until <= " + micros)[0]; n != "0" {
				t.Fatalf("%s rows are left", n)
			}
		})
	})
	// All stored tokens are lost (hazard 34).
	t.Run("lost tables", func(t *testing.T) {
		// The database seems to be new, or restored from an old backup.
		restore := func() { exec(t, pool, "DELETE FROM lockkit.locks; UPDATE lockkit.version SET token = 0") }
		restore()
		grow(t, "restored", 0, restore)
	})
	t.Run("server restart", func(t *testing.T) {
		ahead := uint64(time.Now().Add(26 * time.Hour).UnixMicro())
		held, over := exclusive("held"), exclusive("over")
		held.MinToken, over.MinToken = ahead, ahead
		acquire(t, s, held)
		acquire(t, s, over)
		release(t, s, over)
		acquire(t, s, claimed()) // a release is on disk with the next grant at the latest
		server.Kill()
		server.Restart()
		again := func(c store.Claim) (g store.Grant) {
			testserver.Eventually(t, patience, "the server is back", func() bool {
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
			if g := again(exclusive(key)); g.Token < ahead+store.TokenStep {
				t.Errorf("%s: got token %d after %d", key, g.Token, ahead)
			}
		}
	})
	t.Run("tokens of readers", func(t *testing.T) {
		c := exclusive("read")
		c.MinToken = uint64(time.Now().Add(25 * time.Hour).UnixMicro())
		g := acquire(t, s, c)
		release(t, s, c)
		grow(t, "read", g.Token, func() {
			expire()
			r := exclusive("read")
			r.Weight = 1
			if acquire(t, s, r).Token != 0 {
				t.Error("a reader has a token")
			}
			release(t, s, r)
		})
	})
	// A sweep deletes only rows whose token is at most a floor that each later call
	// reads.
	t.Run("claims during a deletion", func(t *testing.T) {
		var all sync.WaitGroup
		stop := make(chan struct{})
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
					exec(t, pool, "DELETE FROM lockkit.locks WHERE state IS NULL AND until <= "+micros+
						" AND token <= (SELECT token FROM lockkit.version)")
				}
			}
		})
		raise := func() {
			exec(t, pool, "UPDATE lockkit.version SET token = greatest(token, (SELECT max(token) FROM lockkit.locks))")
		}
		var grants sync.WaitGroup
		for _, key := range []string{"a", "b", "c"} {
			grants.Go(func() { grow(t, key, 0, raise) })
		}
		grants.Wait()
		close(stop)
		all.Wait()
	})
}
