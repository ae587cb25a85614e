package pgstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	pool := testclient.Postgres(t, "postgres://127.0.0.1:1/none")
	for what, err := range map[string]error{
		"a nil pool":       second(pgstore.New(nil)),
		"a nil option":     second(pgstore.New(pool, nil)),
		"a nil listener":   second(pgstore.New(pool, pgstore.WithListener(nil))),
		"a nil migration":  pgstore.Migrate(t.Context(), nil),
		"a nil tx's token": pgstore.CheckToken(t.Context(), nil, "a", 1),
	} {
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", what, err, store.ErrInvalid)
		}
	}
}

// TestRefusedClaims checks that impossible claims are refused before anything is sent.
// No server listens at the address of the pool.
func TestRefusedClaims(t *testing.T) {
	t.Parallel()
	s := newStore(t, testclient.Postgres(t, "postgres://127.0.0.1:1/none"))
	for what, edit := range map[string]func(c *store.Claim){
		"no key":                     func(c *store.Claim) { c.Key = "" },
		"a long key":                 func(c *store.Claim) { c.Key = strings.Repeat("k", 513) },
		"a key that is not text":     func(c *store.Claim) { c.Key = "\xff" },
		"a key with a control sign":  func(c *store.Claim) { c.Key = "a\x00" },
		"no lease":                   func(c *store.Claim) { c.Lease = "" },
		"no owner":                   func(c *store.Claim) { c.Owner = "" },
		"a long owner to join":       func(c *store.Claim) { c.Via = strings.Repeat("v", 257) },
		"no TTL":                     func(c *store.Claim) { c.TTL = 0 },
		"a TTL of ages":              func(c *store.Claim) { c.TTL = math.MaxInt64 },
		"no weight":                  func(c *store.Claim) { c.Weight = 0 },
		"more than the limit":        func(c *store.Claim) { c.Limit = 1 },
		"a limit beyond all":         func(c *store.Claim) { c.Limit = store.All + 1 },
		"a token beyond all":         func(c *store.Claim) { c.MinToken = math.MaxUint64 },
		"a record kept for no time":  func(c *store.Claim) { c.Record = &store.Record{} },
		"a record kept for ages":     func(c *store.Claim) { c.Record = &store.Record{Retain: math.MaxInt64} },
		"a record that is very long": func(c *store.Claim) { c.Record = &store.Record{Retain: time.Hour, Value: make([]byte, 65<<20)} },
	} {
		c := claimed()
		edit(&c)
		if _, err := s.Acquire(t.Context(), c); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got %v, want %v", what, err, store.ErrInvalid)
		}
	}
	c := claimed()
	c.Weight, c.MinToken = 1, 1
	wantIs(t, "a reader's token", second(s.Acquire(t.Context(), c)), store.ErrUnsupported)
	c = claimed()
	c.Keep = -1
	wantIs(t, "release", s.Release(t.Context(), c), store.ErrInvalid)
	c.Keep, c.Record = 0, &store.Record{Attempt: -1}
	wantIs(t, "release", s.Release(t.Context(), c), store.ErrInvalid)
	c.Record, c.Key = nil, ""
	wantIs(t, "extend", s.Extend(t.Context(), []store.Claim{c})[0].Err, store.ErrInvalid)
	wantIs(t, "watch", second(s.Watch(t.Context(), c)), store.ErrInvalid)

	wantIs(t, "a call of a server that is not there", second(s.Acquire(t.Context(), claimed())), store.ErrUnavailable)
	wantIs(t, "a watch of it", second(s.Watch(t.Context(), claimed())), store.ErrUnavailable)
}

func TestClosedStore(t *testing.T) {
	t.Parallel()
	server := database(t)
	s := newStore(t, testclient.Postgres(t, server.URL()))
	c := claimed()
	acquire(t, s, c)
	woken, err := s.Watch(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, open := <-woken; open {
		t.Error("the watch is open")
	}
	wantIs(t, "watch", second(s.Watch(t.Context(), c)), store.ErrClosed)
	release(t, s, c)

	quiet := newStore(t, testclient.Postgres(t, server.URL()), pgstore.WithoutWakeUps())
	wantIs(t, "watch", second(quiet.Watch(t.Context(), c)), store.ErrUnsupported)
}

// TestErrorReplies checks the outcome of a call that fails with an error of the server
// (hazard 17).
func TestErrorReplies(t *testing.T) {
	t.Parallel()
	for code, refused := range map[string]bool{
		"40001": true, "40P01": true, "55P03": true, "57014": true, "57P03": true, "25006": true, "42501": true,
		"53300": true, "53100": true, "22P05": true, "28P01": true, "3D000": true, "3F000": true, "42883": true,
		"08P01": false, "08006": false, "57P01": false, "57P02": false, "58000": false, "58030": false,
		"XX000": false, "XX001": false, "F0000": false, "40003": false, "": false, "?": false,
	} {
		err := pgstore.Verdict(&pgconn.PgError{Severity: "ERROR", Code: code})
		if errors.Is(err, store.ErrUnavailable) != refused {
			t.Errorf("%q: got %v, and that it was not done is certain: %v", code, err, refused)
		}
	}
	if err := pgstore.Verdict(net.ErrClosed); errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a connection that is closed: got %v, want an unknown outcome", err)
	}

	t.Run("changed table", func(t *testing.T) {
		t.Parallel()
		pool := testclient.Postgres(t, database(t).URL("pool_max_conns=1", "default_query_exec_mode=simple_protocol"))
		var err error
		for _, text := range []string{
			"CREATE TABLE public.orders (id int)", "PREPARE p AS SELECT * FROM public.orders",
			"ALTER TABLE public.orders ADD COLUMN paid bool", "EXECUTE p",
		} {
			_, err = pool.Exec(t.Context(), text)
		}
		wantIs(t, "statement of a changed table", pgstore.Verdict(err), store.ErrUnavailable)
		if err = pgstore.Verdict(err); strings.Contains(err.Error(), "standby") {
			t.Errorf("got %v, want no word about a standby", err)
		}
	})

	t.Run("each class", func(t *testing.T) {
		t.Parallel()
		server := database(t)
		pool := testclient.Postgres(t, server.URL("pool_max_conns=1"))
		s := newStore(t, pool)
		// An update of a row fails with the key of the row as its SQLSTATE.
		server.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = convert_from(NEW.name, 'UTF8'); END $$;
			CREATE TRIGGER refuse BEFORE UPDATE ON lockkit.locks FOR EACH ROW WHEN (length(NEW.name) = 5) EXECUTE FUNCTION public.refuse()`)
		answers := func() { // waits until an answer or a probe has opened the gate
			testserver.Eventually(t, patience, "the server is known to answer", func() bool {
				_, err := s.Acquire(t.Context(), claimed())
				return err == nil
			})
		}
		for code, class := range pgstore.Classes() {
			if class.Again() {
				continue
			}
			c := exclusive(code)
			answers()
			acquire(t, s, c)
			kept := func() bool {
				before := pool.Stat().NewConnsCount()
				err := s.Extend(t.Context(), []store.Claim{c})[0].Err
				if err == nil || errors.Is(err, store.ErrUnavailable) != class.Unchanged() {
					t.Errorf("%s: got %v, want that nothing was changed to be certain: %v", code, err, class.Unchanged())
				}
				answers()
				return pool.Stat().NewConnsCount() == before
			}
			switch got := kept(); {
			case got && !class.Kept():
				t.Errorf("%s: got a connection that is kept, want a new one", code)
			case !got && class.Kept():
				// On a busy machine a call without an answer in time closes it, too.
				testserver.Eventually(t, patience, code+": the connection is kept", kept)
			}
		}
	})

	t.Run("conflicts are repeated", func(t *testing.T) {
		t.Parallel()
		server := database(t)
		s := newStore(t, testclient.Postgres(t, server.URL()))
		server.Exec(`CREATE SEQUENCE public.times;
			CREATE FUNCTION public.meet() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF nextval('public.times') % 4 > 0 THEN
					RAISE EXCEPTION 'met' USING ERRCODE = convert_from(NEW.name, 'UTF8');
				END IF;
				RETURN NEW;
			END $$;
			CREATE TRIGGER meet BEFORE UPDATE ON lockkit.locks FOR EACH ROW WHEN (length(NEW.name) = 5) EXECUTE FUNCTION public.meet()`)
		met := 0
		for code, class := range pgstore.Classes() {
			if !class.Again() {
				continue
			}
			met++
			c := exclusive(code)
			acquire(t, s, c)
			if err := s.Extend(t.Context(), []store.Claim{c})[0].Err; err != nil {
				t.Errorf("%s: extend: got %v, want nil", code, err)
			}
			release(t, s, c)
			held(t, s, c, false)
		}
		if met != 3 {
			t.Errorf("%d codes were met, want 3", met)
		}
	})

	t.Run("refusing server", func(t *testing.T) {
		t.Parallel()
		server := database(t)
		c, owner := claimed(), newStore(t, testclient.Postgres(t, server.URL()))
		held(t, owner, c, false) // held creates the key's row
		for what, setting := range map[string]string{
			"a read-only database": "default_transaction_read_only = on",
			"no time":              "statement_timeout = 1",
		} {
			name := "u" + strings.ToLower(rand.Text())
			server.Exec("CREATE ROLE " + name + " LOGIN SUPERUSER; ALTER ROLE " + name + " SET " + setting)
			s := newStore(t, testclient.Postgres(t, strings.Replace(server.URL(), "postgres@", name+"@", 1)))
			tx := lockRow(t, server, c.Key)
			_, err := s.Acquire(t.Context(), exclusive(c.Key))
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantIs(t, what, err, store.ErrUnavailable)
			held(t, owner, c, false)
		}
	})

	// The error matches the cause of the caller's context.
	t.Run("cause of the context", func(t *testing.T) {
		t.Parallel()
		server := database(t)
		r, c, gone := newRig(t, server), claimed(), errors.New("gone")
		acquire(t, r.store, c)
		f := r.proxy.Inject(testserver.Statement(giving, sql(c.Lease)), testserver.DropReply)
		ctx, leave := context.WithCancelCause(t.Context())
		defer leave(nil)
		done := make(chan error, 1)
		go func() { done <- r.store.Release(ctx, c) }()
		f.Await(t)
		leave(gone)
		err := <-done
		unknown(t, "release", err)
		wantIs(t, "release", err, gone)
	})
}
