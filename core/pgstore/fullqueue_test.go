package pgstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestWakeUps_FullQueue checks a release and a Commit that would wake a waiter. Both
// send no notification while the server's queue of notifications is at least half full,
// for example because of a stuck listener. If the queue were full, the notification
// would fail, and with it the write. The test replaces the server's functions, because
// a real queue holds 8 GB.
func TestWakeUps_FullQueue(t *testing.T) {
	t.Parallel()
	server := database(t)
	const system = "SET allow_system_table_mods = on; "
	server.Exec(system + "ALTER FUNCTION pg_catalog.pg_notify(text, text) RENAME TO own_notify; " +
		"ALTER FUNCTION pg_catalog.pg_notification_queue_usage() RENAME TO own_queue_usage; " +
		"CREATE FUNCTION pg_catalog.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS " +
		"$$ BEGIN RAISE EXCEPTION 'too many notifications in the NOTIFY queue'; END $$")
	usage := func(n string) {
		t.Helper()
		server.Exec(system + "CREATE OR REPLACE FUNCTION pg_catalog.pg_notification_queue_usage() " +
			"RETURNS double precision LANGUAGE sql VOLATILE AS 'SELECT " + n + "::double precision'")
	}
	pool := testclient.Postgres(t, server.URL())
	s := newStore(t, pool, pgstore.WithoutWakeUps())
	for name, free := range map[string]func(c store.Claim) error{
		"release": func(c store.Claim) error { return s.Release(t.Context(), c) },
		"commit": func(c store.Claim) error {
			c.Record = &store.Record{Value: []byte("answer"), Attempt: 1, Done: true, Retain: c.TTL}
			tx, err := pool.Begin(t.Context())
			if err != nil {
				return err
			}
			defer tx.Rollback(context.Background())
			return errors.Join(pgstore.In(tx).SaveRun(t.Context(), s, c), tx.Commit(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := claimed()
			w := exclusive(c.Key)
			w.Wait = true
			if name == "commit" {
				c.Record = &store.Record{Value: []byte("begun"), Retain: c.TTL}
			}
			acquire(t, s, c)
			wantIs(t, "acquire", second(s.Acquire(t.Context(), w)), store.ErrBusy)
			c.Record = nil
			usage("0.49")
			if err := free(c); err == nil || !strings.Contains(err.Error(), "too many notifications") {
				t.Errorf("below a half: got %v, want the error of the notification", err)
			}
			usage("0.5")
			if err := free(c); err != nil {
				t.Errorf("at a half: got %v, want nil", err)
			}
			acquire(t, s, w) // the waiter's next attempt, without a wake-up
		})
	}
}
