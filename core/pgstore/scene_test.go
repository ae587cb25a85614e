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

// patience is how long a test waits for what should come at once.
const patience = 20 * time.Second

// rig is a Store behind a proxy, and one beside it.
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
		// A statement that is prepared has no text in its request.
		newStore(t, testclient.Postgres(t, server.URLAt(proxy.Addr, "pool_max_conns=6", "default_query_exec_mode=exec"))),
		newStore(t, testclient.Postgres(t, server.URL("pool_max_conns=4"))),
	}
}

// What stands in the statements that take, release and extend the usual lock, and in those that
// make and change the row of any other.
const (
	taking    = "RETURNING k.token"
	giving    = "lease=NULL,owner=NULL"
	extending = "until=GREATEST(k.until"
	making    = "INSERT INTO lockkit.locks (name"
	changing  = "UPDATE lockkit.locks SET"
	sweeping  = "k.due<="
	deleting  = "DELETE FROM lockkit.locks"
)

// micros is the server's time as it stands in a row.
const micros = "(extract(epoch FROM clock_timestamp())*1000000)::bigint"

// sweepAll deletes all rows of which nothing is alive, and keeps the highest token of them, as a
// sweep does that has time.
const sweepAll = "WITH gone AS (DELETE FROM lockkit.locks WHERE state IS NULL AND until <= " + micros + " RETURNING token) " +
	"UPDATE lockkit.version SET token = greatest(token, (SELECT max(token) FROM gone))"

// claimed returns an exclusive claim of a key that nobody else uses.
func claimed() store.Claim { return exclusive("key:" + rand.Text()) }

// nested returns a further claim of c's owner.
func nested(c store.Claim) store.Claim {
	c.Lease = rand.Text()
	return c
}

// sql is how a text stands in a statement.
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

// held fails the test unless another owner is kept out of c's key, or admitted.
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

// unknown fails the test unless err leaves the outcome open.
func unknown(t testing.TB, what string, err error) {
	t.Helper()
	for _, other := range []error{store.ErrUnavailable, store.ErrLost, store.ErrBusy, store.ErrInvalid, store.ErrUnsupported} {
		if err == nil || errors.Is(err, other) {
			t.Fatalf("%s: got %v, want an unknown outcome", what, err)
		}
	}
}

// unlocked makes a call again while it has changed nothing, since the server was waited for, or a
// row, for too long: so says every wait that a machine stood still in.
func unlocked(call func() error) error {
	for stop := time.Now().Add(patience); ; {
		err := call()
		if !errors.Is(err, store.ErrUnavailable) || time.Now().After(stop) {
			return err
		}
	}
}

// leaving makes a call whose caller leaves when the fault has bitten. It leaves because of
// another call, which says nothing of this one.
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
		t.Errorf("returned %v after its context had ended", took)
	}
	return err
}
