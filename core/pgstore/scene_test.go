package pgstore_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// patience limits how long a test waits for an event.
const patience = 20 * time.Second

// rig has a Store behind a proxy, and a Store with a direct connection.
type rig struct {
	server *testserver.Postgres
	proxy  *testserver.Proxy
	store  *pgstore.Store
	direct *pgstore.Store
}

func newRig(t testing.TB, server *testserver.Postgres) *rig {
	t.Helper()
	proxy := testserver.NewPostgresProxy(t, server.Addr)
	return &rig{
		server, proxy,
		// With this mode the request has the text of the statement, which is not
		// prepared.
		newStore(t, testclient.Postgres(t, server.URLAt(proxy.Addr, "pool_max_conns=6", "default_query_exec_mode=exec"))),
		newStore(t, testclient.Postgres(t, server.URL("pool_max_conns=4"))),
	}
}

// The tests recognize statements by these texts. taking, giving and extending are for
// the usual lock. making and changing are for the rows of all other locks. sweeping and
// deleting are for the sweep.
const (
	taking    = "RETURNING k.token"
	giving    = "lease=NULL,owner=NULL"
	extending = "until=GREATEST(k.until"
	making    = "INSERT INTO lockkit.locks (name"
	changing  = "UPDATE lockkit.locks SET"
	sweeping  = "k.due<="
	deleting  = "DELETE FROM lockkit.locks"
)

// micros is an expression for the server's time in the unit of the columns.
const micros = "(extract(epoch FROM clock_timestamp())*1000000)::bigint"

// sweepAll deletes all rows without live entries, and stores their highest token, like a
// sweep that deletes every such row.
const sweepAll = "WITH gone AS (DELETE FROM lockkit.locks WHERE state IS NULL AND until <= " + micros + " RETURNING token) " +
	"UPDATE lockkit.version SET token = greatest(token, (SELECT max(token) FROM gone))"

// claimed returns an exclusive claim of a key that nobody else uses.
func claimed() store.Claim { return exclusive("key:" + rand.Text()) }

// nested returns a further claim of c's owner.
func nested(c store.Claim) store.Claim {
	c.Lease = rand.Text()
	return c
}

// sql returns s in hex, as a statement contains it.
func sql(s string) string { return hex.EncodeToString([]byte(s)) }

func acquire(t testing.TB, s store.Store, c store.Claim) store.Grant {
	t.Helper()
	g, err := s.Acquire(t.Context(), c)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	return g
}

func release(t testing.TB, s store.Store, c store.Claim) {
	t.Helper()
	if err := s.Release(t.Context(), c); err != nil {
		t.Fatalf("release: %v", err)
	}
}

// held fails the test unless the key of c is busy for another owner or, if want is
// false, free.
func held(t testing.TB, s store.Store, c store.Claim, want bool) {
	t.Helper()
	next := exclusive(c.Key)
	_, err := s.Acquire(t.Context(), next)
	if errors.Is(err, store.ErrBusy) != want || err != nil && !want {
		t.Fatalf("another one's acquire: got %v, and the key should be held: %v", err, want)
	}
	if err == nil {
		release(t, s, next)
	}
}

func wantIs(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: got %v, want %v", what, err, want)
	}
}

func unknown(t testing.TB, what string, err error) {
	t.Helper()
	for _, other := range []error{store.ErrUnavailable, store.ErrLost, store.ErrBusy, store.ErrInvalid, store.ErrUnsupported} {
		if err == nil || errors.Is(err, other) {
			t.Fatalf("%s: got %v, want an unknown outcome", what, err)
		}
	}
}

// unlocked repeats call while it fails with ErrUnavailable, for the time patience.
// On a stalled machine, a wait for the server or for a row's lock can time out.
func unlocked(call func() error) error {
	for stop := time.Now().Add(patience); ; {
		err := call()
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(stop) {
			return err
		}
	}
}

// leaving makes a call whose caller leaves after the fault has occurred. The cause of
// the context wraps errors of another call, which must not affect the result of this
// call.
func leaving(t testing.TB, f *testserver.Fault, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(nil)
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	f.Await(t)
	start := time.Now()
	leave(errors.Join(context.Canceled, store.ErrUnavailable, store.ErrLost))
	err := <-done
	if took := time.Since(start); took > patience/4 {
		t.Errorf("returned %v after its context was done", took)
	}
	return err
}
