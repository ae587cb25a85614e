package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestWatch_Pooler checks that a Store behind a pooler leaves no session listening,
// because other clients get that session.
func TestWatch_Pooler(t *testing.T) {
	t.Parallel()
	testserver.RequirePgbouncer(t)
	for name, c := range map[string]struct {
		setting  string
		sessions int // at least the number of the server's sessions
		want     error
	}{
		"transactions of one session":   {"default_pool_size = 1", 1, store.ErrUnsupported},
		"transactions of many sessions": {"default_pool_size = 20", 10, store.ErrUnsupported},
		"pooled sessions":               {"pool_mode = session", 10, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pooler := testserver.StartPgbouncer(t, database(t), c.setting)
			s := newStore(t, testclient.Postgres(t, pooler.URL()))
			w := claimed()
			w.Wait = true
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := s.Watch(ctx, w)
			wantIs(t, "watch", err, c.want)
			for range c.sessions {
				// Each connection stays in a transaction until the end, so the next one
				// gets another session.
				conn, err := pgx.Connect(t.Context(), pooler.URL("default_query_exec_mode=exec"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(context.Background())
				tx, err := conn.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				rows, _ := tx.Query(t.Context(), "SELECT pg_listening_channels()")
				channels, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil || len(channels) > 0 {
					t.Errorf("got a session that listens to %q, and %v, want none", channels, err)
				}
			}
		})
	}
}

// TestWithListener_OnNotification checks that a release wakes a waiter even if the
// configuration of the listener has a function for notifications.
func TestWithListener_OnNotification(t *testing.T) {
	t.Parallel()
	server := database(t)
	direct, err := pgx.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	direct.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	s := newStore(t, testclient.Postgres(t, server.URL()), pgstore.WithListener(direct))
	held := claimed()
	acquire(t, s, held)
	waiter := exclusive(held.Key)
	waiter.Wait = true
	woken, err := s.Watch(t.Context(), waiter)
	if err != nil {
		t.Fatal(err)
	}
	wantIs(t, "acquire", second(s.Acquire(t.Context(), waiter)), store.ErrBusy)
	release(t, s, held)
	select {
	case _, open := <-woken:
		if !open {
			t.Error("got the end of the watch, want a wake-up")
		}
	case <-time.After(patience):
		t.Error("got no wake-up")
	}
}
