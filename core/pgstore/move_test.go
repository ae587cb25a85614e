package pgstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/proof/tally"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// pgxExec makes pgx prepare no statement. The plan of a prepared statement could outlive
// a function.
const pgxExec = pgx.QueryExecModeExec

// TestMigrate_Version6 checks that the data of version 6 exists after Migrate, and that
// processes of version 6 are refused.
func TestMigrate_Version6(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"6", "2"} {
		t.Run("from version "+of, func(t *testing.T) {
			t.Parallel()
			server := shared.Get(t).NewDatabase(t, "standard_conforming_strings = off", "default_transaction_isolation = 'serializable'")
			old := newFormer(t, server.URL("options=-c%20default_transaction_isolation%3Dread%5C%20committed"))
			do := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			ctx := t.Context()
			lock, odd, gone, kept, free, ahead := claimed(), claimed(), claimed(), claimed(), claimed(), claimed()
			odd.Owner, odd.Lease = "=\xff\\x'\n", "\\ \"\xfe\x00"
			readers := []store.Claim{claimed(), claimed()}
			readers[1].Key = readers[0].Key
			tokens := make(map[string]uint64)
			ahead.MinToken = uint64(time.Now().Add(time.Hour).UnixMicro())
			for _, c := range []store.Claim{lock, odd, kept, free, ahead} {
				g, err := old.acquire(ctx, c)
				do(err)
				tokens[c.Key] = g.Token
			}
			for i := range readers {
				readers[i].Weight = 1
				do(second(old.acquire(ctx, readers[i])))
			}
			wantIs(t, "release of an unknown lease", old.release(ctx, gone), refusal(2))
			kept.Keep = time.Minute
			do(old.release(ctx, kept))
			do(old.release(ctx, free))
			do(old.release(ctx, ahead))
			waits := exclusive(lock.Key)
			waits.Wait, waits.Fair = true, true
			wantIs(t, "a waiter", second(old.acquire(ctx, waits)), refusal(1))

			begun, failed, again, done := claimed(), claimed(), claimed(), claimed()
			for _, c := range []*store.Claim{&begun, &failed, &again, &done} {
				c.Record = &store.Record{Value: []byte("print of " + c.Key), Retain: time.Hour}
				do(second(old.acquire(ctx, *c)))
			}
			save := func(c store.Claim, value string, done bool) {
				c.Record = &store.Record{Value: []byte(value), Attempt: 1, Done: done, Retain: time.Hour}
				do(old.release(ctx, c))
			}
			save(done, "answer\x00\xff", true)
			save(failed, "", false)
			save(again, "print of "+again.Key, false)
			repeated := nested(again)
			do(second(old.acquire(ctx, repeated)))
			if of == "6" {
				do(old.ask(ctx, "SELECT 0 FROM lockkit.put_card($1, 60000, $2)", []byte("PROCESS1"), []byte(`{"process":"PROCESS1"}`)))
			}
			exec(t, old.pool, "INSERT INTO lockkit.seen (resource, token) VALUES ('account', 42)")
			if of == "2" {
				exec(t, old.pool, `DROP FUNCTION lockkit.look; DROP FUNCTION lockkit.show; DROP FUNCTION lockkit.process_of; DROP TABLE lockkit.cards;
					DROP FUNCTION lockkit.undo_run; DROP FUNCTION lockkit.save_run; ALTER TYPE lockkit.state DROP ATTRIBUTE run_found;
					ALTER TABLE lockkit.keys DROP COLUMN run_found; DROP TYPE lockkit.found; UPDATE lockkit.version SET version = 2`)
			}

			pool := testclient.Postgres(t, server.URL())
			s := newStore(t, pool)
			if _, err := s.Acquire(ctx, claimed()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "pgstore.Migrate") {
				t.Errorf("acquire before Migrate: got %v, want a word about pgstore.Migrate", err)
			}
			do(pgstore.Migrate(ctx, pool))
			for what, err := range old.calls(ctx) {
				if !isRefusedForGood(err) {
					t.Errorf("%s of version 6: got %v, want that there is no function", what, err)
				}
			}
			for _, c := range []store.Claim{lock, odd} {
				held(t, s, c, true)
				if g := acquire(t, s, c); g.Token != tokens[c.Key] {
					t.Errorf("%q: got token %d, want %d", c.Lease, g.Token, tokens[c.Key])
				}
				do(s.Extend(ctx, []store.Claim{c})[0].Err)
				do(s.Release(ctx, c))
				if g := acquire(t, s, exclusive(c.Key)); g.Token < tokens[c.Key]+store.TokenStep {
					t.Errorf("%q: got token %d after %d", c.Lease, g.Token, tokens[c.Key])
				}
			}
			held(t, s, readers[0], true)
			for _, c := range readers {
				do(s.Release(ctx, c))
			}
			held(t, s, readers[0], false)
			wantIs(t, "the straggler", second(s.Acquire(ctx, gone)), store.ErrLost)
			held(t, s, kept, true)
			for _, c := range []store.Claim{free, ahead} {
				if g := acquire(t, s, exclusive(c.Key)); g.Token < tokens[c.Key]+store.TokenStep {
					t.Errorf("a free key: got token %d after %d", g.Token, tokens[c.Key])
				}
			}

			next := func(c store.Claim) *store.Record {
				n := exclusive(c.Key)
				n.Record = &store.Record{Value: []byte("print of " + c.Key), Retain: time.Hour}
				return acquire(t, s, n).Record
			}
			if r := next(done); !r.Done || r.Attempt != 1 || string(r.Value) != "answer\x00\xff" || r.Retain < 50*time.Minute {
				t.Errorf("got %+v, want the answer", r)
			}
			if r := next(failed); r.Done || r.Attempt != 2 || string(r.Value) != "" {
				t.Errorf("got %+v, want attempt 2", r)
			}
			if g := acquire(t, s, begun); g.Record.Attempt != 1 || string(g.Record.Value) != "print of "+begun.Key {
				t.Errorf("got %+v, want the run that was begun", g.Record)
			}
			begun.Record = &store.Record{Value: []byte("late"), Attempt: 1, Done: true, Retain: time.Hour}
			do(s.Release(ctx, begun))
			if r := next(begun); !r.Done || string(r.Value) != "late" {
				t.Errorf("got %+v, want the answer that was saved after the move", r)
			}
			// A run that is undone leaves the earlier record.
			repeated.Record, repeated.Undo = nil, true
			do(s.Release(ctx, repeated))
			if r := next(again); r.Done || r.Attempt != 2 {
				t.Errorf("got %+v, want attempt 2 once more", r)
			}
			if of == "6" {
				if cards, err := s.Cards(ctx); err != nil || len(cards) != 1 || cards[0].Process != "PROCESS1" {
					t.Errorf("got cards %v and %v", cards, err)
				}
			}
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return pgstore.CheckToken(ctx, tx, "account", 41) })
			wantIs(t, "an older token", err, store.ErrLost)
			left := server.Exec(`BEGIN ISOLATION LEVEL READ COMMITTED;
				SELECT p.proname::text FROM pg_proc p WHERE p.pronamespace = 'lockkit'::regnamespace UNION ALL
				SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'lockkit'::regnamespace AND c.relkind IN ('v', 'c') UNION ALL
				SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'lockkit'::regnamespace AND c.relname IN ('keys', 'floor', 'cards');
				COMMIT`)
			if len(left) > 0 {
				t.Errorf("left of version %s is %v", of, left)
			}
		})
	}
}

// TestMigrate_WayBack checks that the steps in README.md that return to version 6
// preserve answers and tokens.
func TestMigrate_WayBack(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, steps, _ := strings.Cut(string(readme), "```sql\n")
	steps, _, found := strings.Cut(steps, "```")
	if !found {
		t.Fatal("README.md has no steps in SQL")
	}
	server := database(t)
	pool := testclient.Postgres(t, server.URL())
	s := newStore(t, pool)
	begun, last := run(t, s)
	release(t, s, last)
	unfinished, _ := run(t, s)
	free := claimed()
	free.MinToken = uint64(time.Now().Add(time.Hour).UnixMicro())
	g := acquire(t, s, free)
	release(t, s, free)
	if err := s.Put(t.Context(), store.Card{Process: "PROCESS1"}, time.Minute); err != nil {
		t.Fatal(err)
	}
	seen := func(token uint64) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pgstore.CheckToken(t.Context(), tx, "account", token) })
	}
	if err := seen(42); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "ALTER SCHEMA lockkit RENAME TO lockkit7")
	old := newFormer(t, server.URL())
	exec(t, old.pool, steps)

	ask := func(c store.Claim) *store.Record {
		t.Helper()
		c = nested(c)
		g, err := old.acquire(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return g.Record
	}
	if r := ask(begun); !r.Done || r.Attempt != 1 || string(r.Value) != "answer" {
		t.Errorf("got %+v, want the answer", r)
	}
	if r := ask(unfinished); r.Done || r.Attempt != 2 || string(r.Value) != "begun" {
		t.Errorf("got %+v, want attempt 2", r)
	}
	if next, err := old.acquire(t.Context(), exclusive(free.Key)); err != nil || next.Token < g.Token+store.TokenStep {
		t.Errorf("got token %d and %v after %d", next.Token, err, g.Token)
	}
	wantIs(t, "an older token", seen(41), store.ErrLost)
	if n := server.Exec("SELECT count(*) FROM lockkit.keys WHERE key LIKE '{card}%'")[0]; n != "0" {
		t.Errorf("%s cards are keys now", n)
	}
}

// TestMigrate_Rights checks that owners and users of the tables keep their rights.
func TestMigrate_Rights(t *testing.T) {
	t.Parallel()
	server := durable.Get(t).NewDatabase(t)
	old := newFormer(t, server.URL())
	name := func() string { return "u" + strings.ToLower(rand.Text()) }
	owner, app, operator := name(), name(), name()
	exec(t, old.pool, "CREATE ROLE "+owner+" LOGIN; CREATE ROLE "+app+" LOGIN; CREATE ROLE "+operator+" LOGIN; ALTER SCHEMA lockkit OWNER TO "+owner+";"+
		`DO $$ DECLARE t text; BEGIN FOR t IN SELECT relname FROM pg_class WHERE relnamespace = 'lockkit'::regnamespace AND relkind IN ('r', 'v') LOOP
			EXECUTE format('ALTER TABLE lockkit.%I OWNER TO `+owner+`', t); END LOOP; END $$;`+
		"GRANT USAGE ON SCHEMA lockkit TO "+app+", "+operator+"; GRANT SELECT, INSERT, UPDATE, DELETE ON lockkit.keys TO "+app+
		"; GRANT SELECT, UPDATE ON lockkit.floor TO "+app+"; GRANT SELECT ON lockkit.version TO "+app+"; GRANT SELECT ON lockkit.keys TO "+operator)
	// A superuser migrates.
	if err := pgstore.Migrate(t.Context(), old.pool); err != nil {
		t.Fatal(err)
	}
	as := func(user string) *pgstore.Store {
		return newStore(t, testclient.Postgres(t, strings.Replace(server.URL(), "postgres@", user+"@", 1)))
	}
	for _, user := range []string{owner, app} {
		if err := as(user).Check(t.Context()); err != nil {
			t.Errorf("%s: got %v, want nil", user, err)
		}
	}
	c := claimed()
	acquire(t, as(app), c)
	if state, err := as(operator).Look(t.Context(), c.Key); err != nil || len(state.Holds) != 1 {
		t.Errorf("look: got %+v and %v, want a hold", state, err)
	}
	if _, err := as(operator).Acquire(t.Context(), claimed()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("acquire of an operator: got %v, want %v", err, store.ErrUnavailable)
	}
}

// TestMigrate_BesideReader calls Migrate while a transaction is open that has read the
// tables, like pg_dump's. It checks that calls of version 6 are still answered while
// Migrate waits for the transaction.
func TestMigrate_BesideReader(t *testing.T) {
	t.Parallel()
	server := shared.Get(t).NewDatabase(t)
	old, ctx := newFormer(t, server.URL()), t.Context()
	reader, err := old.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = reader.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := reader.Exec(ctx, "SELECT count(*) FROM lockkit.locks"); err != nil {
		t.Fatal(err)
	}
	pool, migrated := testclient.Postgres(t, server.URL()), make(chan error, 1)
	go func() { migrated <- pgstore.Migrate(ctx, pool) }()
	asks := testclient.Postgres(t, server.URL())
	for range 2 {
		testserver.Eventually(t, time.Minute, "Migrate waits", func() bool {
			var n int
			err := asks.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'").Scan(&n)
			return err == nil && n > 0
		})
		c := claimed()
		testserver.Eventually(t, time.Minute, "a call of version 6 is answered", func() bool { return second(old.acquire(ctx, c)) == nil })
	}
	select {
	case err := <-migrated:
		t.Fatalf("migrated beside the reader: %v", err)
	default:
	}
	if err := reader.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
}

// TestMigrate_UnderLoad calls Migrate while processes of version 6 and of this version
// work. It checks that no two processes hold a key at once, that tokens grow, and that
// no saved answer is lost.
func TestMigrate_UnderLoad(t *testing.T) {
	rounds := tally.Trials(10)
	for range rounds {
		underLoad(t)
	}
	tally.Note(t, tally.Facts{
		Part: "processes", Runs: rounds, Faults: map[string]int{"migrated under load": rounds}, Violations: map[string]int{"overlaps": 0},
	})
}

// isLate reports whether err is the error of a call without an answer in time. The
// outcome of such a call is unknown.
func isLate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no answer within the time of a call")
}

func underLoad(t *testing.T) {
	server := shared.Get(t).NewDatabase(t)
	const keys, ttl = 3, 2 * time.Second
	var mu sync.Mutex
	// By key: the end of the last holder's trust, and its token.
	trusted, last := make([]time.Time, keys), make([]uint64, keys)
	enter := func(key int, token uint64, asked time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Before(trusted[key]) && now.Before(asked.Add(ttl)) {
			t.Errorf("key %d: a second holder is in", key)
		}
		if token < last[key]+store.TokenStep {
			t.Errorf("key %d: got token %d after %d", key, token, last[key])
		}
		trusted[key], last[key] = asked.Add(ttl), token
	}
	leave := func(key int) {
		mu.Lock()
		defer mu.Unlock()
		trusted[key] = time.Time{}
	}
	claim := func(key int) store.Claim {
		c := exclusive(fmt.Sprintf("load:%d", key))
		c.TTL = ttl
		return c
	}
	record := func(value string, attempt int) *store.Record {
		return &store.Record{Value: []byte(value), Attempt: attempt, Done: attempt > 0, Retain: time.Hour}
	}
	var answers sync.Map // the saved answers, by key
	var before, after, saved atomic.Int64
	ctx := t.Context()
	var olds, news sync.WaitGroup
	stop := make(chan struct{})
	newFormer(t, server.URL())
	for i := range 4 {
		old := newFormer(t, server.URL("pool_max_conns=2"))
		olds.Go(func() {
			for n := 0; ; n++ {
				key := (i + n) % keys
				c, asked := claim(key), time.Now()
				g, err := old.acquire(ctx, c)
				if err == nil {
					before.Add(1)
					enter(key, g.Token, asked)
					leave(key)
					err = old.release(ctx, c)
				}
				run := exclusive(fmt.Sprintf("run:%d:%d", i, n))
				if err == nil {
					run.Record = record("begun", 0)
					err = second(old.acquire(ctx, run))
				}
				if err == nil {
					run.Record = record(run.Lease, 1)
					if err = old.release(ctx, run); err == nil {
						answers.Store(run.Key, run.Lease)
						saved.Add(1)
					}
				}
				if isRefusedForGood(err) {
					return
				}
				var reply *pgconn.PgError
				if err != nil && !errors.Is(err, refusal(1)) && (!errors.As(err, &reply) || reply.Code != "55P03") {
					t.Errorf("version 6: %v", err)
					return
				}
			}
		})
	}
	for i := range 4 {
		s := newStore(t, testclient.Postgres(t, server.URL("pool_max_conns=2")))
		news.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := (i + n) % keys
				c, asked := claim(key), time.Now()
				g, err := s.Acquire(ctx, c)
				switch {
				case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrUnavailable):
					time.Sleep(time.Millisecond)
					continue
				case isLate(err): // the key may be held until it expires
					continue
				case err != nil:
					t.Errorf("this version: %v", err)
					return
				}
				after.Add(1)
				enter(key, g.Token, asked)
				leave(key)
				if err := s.Release(ctx, c); err != nil && !errors.Is(err, store.ErrUnavailable) && !isLate(err) {
					t.Errorf("this version: release: %v", err)
				}
			}
		})
	}
	testserver.Eventually(t, patience, "version 6 is at work", func() bool { return before.Load() > 20 && saved.Load() > 20 })
	if after.Load() > 0 {
		t.Errorf("%d grants of this version before Migrate", after.Load())
	}
	for range 2 {
		news.Go(func() {
			if err := pgstore.Migrate(context.WithoutCancel(ctx), testclient.Postgres(t, server.URL())); err != nil {
				t.Error(err)
			}
		})
	}
	olds.Wait()
	n := after.Load()
	testserver.Eventually(t, patience, "this version is at work", func() bool { return after.Load() > n+20 })
	close(stop)
	news.Wait()
	s := newStore(t, testclient.Postgres(t, server.URL()))
	answers.Range(func(key, want any) bool {
		c := exclusive(key.(string))
		c.Record = record("begun", 0)
		var g store.Grant
		var err error
		testserver.Eventually(t, patience, "an answer in time", func() bool {
			g, err = s.Acquire(ctx, c)
			return err == nil || errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrLost)
		})
		if err != nil || g.Record == nil || !g.Record.Done || string(g.Record.Value) != want {
			t.Errorf("%s: got %+v and %v, want the answer", key, g.Record, err)
		}
		return true
	})
}
