package pgstore_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// former is a process of version 6, which stored locks with functions in the database.
// It sends the statements of that version.
type former struct{ pool *pgxpool.Pool }

// newFormer returns a process of version 6 on a database. If the database is new,
// newFormer creates the schema of version 6.
func newFormer(t testing.TB, url string) former {
	t.Helper()
	f := former{testclient.Postgres(t, url)}
	var there bool
	if err := f.pool.QueryRow(t.Context(), "SELECT to_regnamespace('lockkit') IS NOT NULL").Scan(&there); err != nil {
		t.Fatal(err)
	}
	if there {
		return f
	}
	for _, name := range []string{"schema", "state", "acquire", "release", "inspect", "view"} {
		text, err := os.ReadFile("testdata/version6/" + name + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		exec(t, f.pool, "SET search_path = pg_catalog, pg_temp; "+string(text)+"; RESET search_path")
	}
	exec(t, f.pool, "INSERT INTO lockkit.version (version) VALUES (6)")
	return f
}

// refusal is the code of a refusal by a function; 0 is not a refusal.
type refusal int

func (r refusal) Error() string { return "refused with code " + string('0'+rune(r)) }

func (f former) acquire(ctx context.Context, c store.Claim) (g store.Grant, err error) {
	var code int
	var fence int64
	var value []byte
	var retain int64
	if c.Record != nil {
		value, retain = append([]byte{}, c.Record.Value...), c.Record.Retain.Milliseconds()
	}
	var attempt *int64
	var answer []byte
	err = f.pool.QueryRow(ctx, "SELECT code, coalesce(fence, 0), attempt, decode(value, 'hex') FROM lockkit.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, '', $11, $12)",
		pgxExec, []byte(c.Key), []byte(c.Lease), []byte(c.Owner), []byte(c.Via), c.Weight, c.Limit, c.TTL.Milliseconds(), c.Fair, c.Wait, int64(c.MinToken), value, retain).
		Scan(&code, &fence, &attempt, &answer)
	if err != nil || code != 0 && code != 4 {
		return g, errors.Join(err, asRefusal(code))
	}
	g = store.Grant{Owner: c.Owner, Token: uint64(fence)}
	if c.Record != nil {
		g.Record = &store.Record{Value: answer, Attempt: int(*attempt), Done: code == 4}
	}
	return g, nil
}

func (f former) release(ctx context.Context, c store.Claim) error {
	var attempt, retain *int64
	var done *bool
	var value []byte
	if r := c.Record; r != nil {
		n, ms := int64(r.Attempt), r.Retain.Milliseconds()
		attempt, done, retain, value = &n, &r.Done, &ms, append([]byte{}, r.Value...)
	}
	return f.ask(ctx, "SELECT code FROM lockkit.release($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		[]byte(c.Key), []byte(c.Lease), c.TTL.Milliseconds(), c.Keep.Milliseconds(), c.Undo, attempt, done, retain, value)
}

func (f former) extend(ctx context.Context, c store.Claim) error {
	return f.ask(ctx, "SELECT lockkit.extend($1, $2, $3)", []byte(c.Key), []byte(c.Lease), c.TTL.Milliseconds())
}

func (f former) ask(ctx context.Context, sql string, args ...any) error {
	var code int
	err := f.pool.QueryRow(ctx, sql, append([]any{pgxExec}, args...)...).Scan(&code)
	return errors.Join(err, asRefusal(code))
}

func asRefusal(code int) error {
	if code == 0 {
		return nil
	}
	return refusal(code)
}

// calls makes the calls of version 6 for locks, runs and operators.
func (f former) calls(ctx context.Context) map[string]error {
	c := claimed()
	record := c
	record.Record = &store.Record{Attempt: 1, Retain: time.Minute}
	return map[string]error{
		"acquire":    second(f.acquire(ctx, c)),
		"a run":      second(f.acquire(ctx, record)),
		"extend":     f.extend(ctx, c),
		"extend all": f.ask(ctx, "SELECT 0 FROM lockkit.extend_all(ARRAY[$1::bytea], ARRAY[$2::bytea], ARRAY[1000])", []byte(c.Key), []byte(c.Lease)),
		"release":    f.release(ctx, c),
		"save":       f.release(ctx, record),
		"look":       f.ask(ctx, "SELECT count(*) * 0 FROM lockkit.look($1, NULL, 1)", []byte(c.Key)),
		"revoke":     f.ask(ctx, "SELECT 0 FROM lockkit.revoke($1, $2, 0)", []byte(c.Key), []byte("12345678")),
		"put a card": f.ask(ctx, "SELECT 0 FROM lockkit.put_card($1, 1000, $2)", []byte("PROCESS1"), []byte("{}")),
	}
}

// isRefusedForGood reports whether the error of a call of version 6 shows that its
// functions or tables are gone.
func isRefusedForGood(err error) bool {
	var reply *pgconn.PgError
	return errors.As(err, &reply) && (reply.Code == "42883" || reply.Code == "42P01")
}
