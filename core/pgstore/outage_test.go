package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func knownDown(err error) bool {
	return errors.Is(err, store.ErrUnavailable) && strings.Contains(err.Error(), "known to be down")
}

// TestOutage checks that callers are refused at once during an outage, and that the
// outage is over with the first answer (hazard 23).
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		down, back func(s *testserver.Postgres)
		words      string
		most       int64 // the maximum number of dials for a hundred callers
	}{
		{"connections refused", (*testserver.Postgres).Kill, (*testserver.Postgres).Restart, "connection refused", 20},
		{"server silent", (*testserver.Postgres).Pause, (*testserver.Postgres).Resume, "no answer", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := start(t)
			var dials atomic.Int64
			s := newStore(t, testclient.Postgres(t, server.URL("pool_max_conns=4"), func(p *pgxpool.Config) {
				p.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					dials.Add(1)
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
			}))
			held := claimed()
			acquire(t, s, held)
			c.down(server)
			testserver.Eventually(t, patience, "the store knows that its server is down", func() bool {
				time.Sleep(20 * time.Millisecond)
				_, err := s.Acquire(t.Context(), claimed())
				return knownDown(err) && strings.Contains(err.Error(), c.words)
			})
			l, err := core.New(s)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(4 * time.Second) // so that earlier calls have returned
			before, asked := dials.Load(), time.Now()
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					if _, err := l.Acquire(t.Context(), fmt.Sprint("order:", i)); !knownDown(err) {
						t.Errorf("got %v", err)
					}
				})
			}
			all.Wait()
			t.Logf("100 callers: %v, %d dials", time.Since(asked), dials.Load()-before)
			if n := dials.Load() - before; n > c.most {
				t.Errorf("%d dials", n)
			}
			// A release is sent even while the server is known to be down.
			if err := s.Release(t.Context(), held); err == nil || knownDown(err) {
				t.Errorf("release: got %v", err)
			}
			c.back(server)
			const limit = patience / 5
			start := time.Now()
			for _, err = s.Acquire(t.Context(), claimed()); err != nil && time.Since(start) < limit; {
				_, err = s.Acquire(t.Context(), claimed()) // a busy server answers late
			}
			t.Logf("the first acquire: %v", time.Since(start))
			if took := time.Since(start); err != nil || took > limit {
				t.Errorf("got %v after %v", err, took)
			}
		})
	}
	// A caller that leaves, or a full pool, does not mean that the server is down.
	t.Run("impatient callers and full pools", func(t *testing.T) {
		t.Parallel()
		server := database(t)
		pool := testclient.Postgres(t, server.URL("pool_max_conns=1"))
		s := newStore(t, pool)
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range []time.Duration{10 * time.Millisecond, patience} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			_, err := s.Acquire(ctx, claimed())
			cancel()
			if !errors.Is(err, store.ErrUnavailable) || knownDown(err) {
				t.Errorf("got %v", err)
			}
		}
		conn.Release()
		acquire(t, s, claimed())
	})
}

// TestOutage_ReadOnlyByDefault checks that a failed call does not close a Store whose
// sessions can write only because of AfterConnect.
func TestOutage_ReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	server := database(t)
	var settings atomic.Int64 // the calls of AfterConnect
	pool := testclient.Postgres(t, server.URL("pool_max_conns=1"), func(p *pgxpool.Config) {
		p.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		p.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			settings.Add(1)
			_, err := conn.Exec(ctx, "SET default_transaction_read_only=off")
			return err
		}
	})
	s := newStore(t, pool)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release() // also if the test stops early
	before := settings.Load()
	testserver.Eventually(t, patience, "a probe has the settings", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		wantIs(t, "acquire from a full pool", second(s.Acquire(ctx, claimed())), store.ErrUnavailable)
		return settings.Load() > before
	})
	conn.Release()
	testserver.Eventually(t, patience, "the store acquires again", func() bool {
		return second(s.Acquire(t.Context(), claimed())) == nil
	})
}
