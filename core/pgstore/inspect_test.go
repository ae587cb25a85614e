package pgstore_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func TestInspector_NoRecordValues(t *testing.T) {
	t.Parallel()
	server := database(t)
	writes := newStore(t, testclient.Postgres(t, server.URL()))
	const keys = 20
	for i := range keys {
		c := claimed()
		c.Key = fmt.Sprintf("test:%d", i)
		c.Record = &store.Record{Value: bytes.Repeat([]byte("v"), 64<<10), Retain: time.Hour}
		acquire(t, writes, c)
	}
	config, err := pgxpool.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	var read atomic.Int64
	config.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return countingConn{conn, &read}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := newStore(t, pool)
	for i := range keys {
		state, err := s.Look(t.Context(), fmt.Sprintf("test:%d", i))
		if err != nil || state.Run == nil || len(state.Holds) != 1 {
			t.Fatalf("got %+v and %v", state, err)
		}
	}
	page, _, err := s.List(t.Context(), "", 100)
	if err != nil || len(page) != keys {
		t.Errorf("%d keys are listed and %v, want %d", len(page), err, keys)
	}
	if n := read.Load(); n == 0 || n > 2*keys*1500+20_000 {
		t.Errorf("%d bytes were read of %d keys", n, keys)
	}
}

func TestRightsOfAnInspector(t *testing.T) {
	t.Parallel()
	server := database(t)
	s := newStore(t, testclient.Postgres(t, server.URL()))
	user := func(name string, rights ...string) *pgstore.Store {
		server.Exec("CREATE ROLE " + name + " LOGIN; GRANT USAGE ON SCHEMA lockkit TO " + name)
		for _, r := range rights {
			server.Exec("GRANT " + r + " TO " + name)
		}
		return newStore(t, testclient.Postgres(t, strings.Replace(server.URL(), "postgres@", name+"@", 1)))
	}
	lacks := func(what string, err error, grant string) {
		t.Helper()
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "GRANT "+grant) {
			t.Errorf("%s: got %v, want one that names GRANT %s", what, err, grant)
		}
	}
	c := claimed()
	acquire(t, s, c)
	id := store.HoldID(c.Lease)
	nobody := user("inspects_nothing")
	_, err := nobody.Look(t.Context(), c.Key)
	lacks("look", err, "SELECT ON lockkit.locks, lockkit.version")
	_, _, err = nobody.List(t.Context(), "", 1)
	lacks("list", err, "SELECT ON lockkit.locks, lockkit.version")
	lacks("put", nobody.Put(t.Context(), store.Card{Process: "p"}, time.Second), "SELECT, INSERT, UPDATE ON lockkit.locks")
	_, err = nobody.Cards(t.Context())
	lacks("cards", err, "SELECT ON lockkit.locks, lockkit.version")
	reader := user("inspects", "SELECT ON lockkit.locks, lockkit.version")
	if state, err := reader.Look(t.Context(), c.Key); err != nil || len(state.Holds) != 1 {
		t.Errorf("look: %+v and %v", state, err)
	}
	lacks("revoke", reader.Revoke(t.Context(), c.Key, id, 0), "SELECT, UPDATE ON lockkit.locks")
	operator := user("revokes", "SELECT, UPDATE ON lockkit.locks", "SELECT ON lockkit.version")
	if err := operator.Revoke(t.Context(), c.Key, id, time.Millisecond); err != nil {
		t.Errorf("revoke: %v", err)
	}
	if x := s.Extend(t.Context(), []store.Claim{c}); !errors.Is(x[0].Err, store.ErrLost) {
		t.Errorf("extend: got %v, want %v", x[0].Err, store.ErrLost)
	}
}

// TestList_RowsOfOthers checks that List skips rows with keys that no Store has
// made.
func TestList_RowsOfOthers(t *testing.T) {
	t.Parallel()
	server := database(t)
	s := newStore(t, testclient.Postgres(t, server.URL()))
	c := claimed()
	acquire(t, s, c)
	for _, key := range []string{`\x1b5b324a`, `\xff`, `\x7b7d`} {
		server.Exec(`INSERT INTO lockkit.locks SELECT '` + key + `', version, token, lease, owner, since, until, written, due, state, value
			FROM lockkit.locks WHERE name = '` + c.Key + `'`)
	}
	var keys []string
	for after := ""; ; {
		page, next, err := s.List(t.Context(), after, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range page {
			keys = append(keys, state.Key)
		}
		if after = next; next == "" {
			break
		}
	}
	if len(keys) != 1 || keys[0] != c.Key {
		t.Errorf("listed is %q, want %q", keys, c.Key)
	}
}

// FuzzScan checks that each answer of a database is read without a panic, and that a
// column that cannot be read causes an error.
func FuzzScan(f *testing.F) {
	for _, text := range []string{`\x6b00`, `k\\\000\377`, `\x6`, `\x`, `\`, `\37`, `\999`, "t", "1", "-1", "9223372036854775808", ""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var b []byte
		var n int64
		var yes bool
		if err := pgstore.Scan([][]byte{text, []byte("1"), []byte("t")}, []any{&b, &n, &yes}); err == nil && (b == nil || n != 1 || !yes) {
			t.Errorf("%q is read as %q, %d and %v", text, b, n, yes)
		}
		if err := pgstore.Scan([][]byte{text}, []any{&n}); err == nil && strconv.FormatInt(n, 10) != strings.TrimLeft(string(text), "+0") && n != 0 {
			t.Errorf("%q is read as %d", text, n)
		}
		if err := pgstore.Scan([][]byte{text}, []any{&b, &n}); err == nil {
			t.Error("a column is missing: got nil, want an error")
		}
	})
}

// TestScan_Binary checks that bytea values in the hex and the escape format are read as
// they were written.
func TestScan_Binary(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{`\x6b00ff`: "k\x00\xff", `k\\\000\377`: "k\\\x00\xff", `\x`: "", "": "", `\\x6b`: `\x6b`} {
		var got []byte
		if err := pgstore.Scan([][]byte{[]byte(text)}, []any{&got}); err != nil || string(got) != want || got == nil {
			t.Errorf("%q: got %q and %v, want %q", text, got, err, want)
		}
	}
	got := []byte("k")
	if err := pgstore.Scan([][]byte{nil}, []any{&got}); err != nil || got != nil {
		t.Errorf("NULL: got %q and %v, want nil", got, err)
	}
}

// TestCardsMeet checks that cards are stored even if transactions are serializable and
// conflict.
func TestCardsMeet(t *testing.T) {
	t.Parallel()
	server := database(t, "default_transaction_isolation = 'serializable'")
	pool := testclient.Postgres(t, server.URL("pool_max_conns=8"))
	for range 20 {
		var wg sync.WaitGroup
		for range 8 {
			s := newStore(t, pool) // s does not know yet that transactions are serializable here
			wg.Go(func() {
				if err := s.Put(t.Context(), store.Card{Process: rand.Text()}, time.Millisecond); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
