package once_test

import (
	"context"
	"testing"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/memstore"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// TestMismatch_InProgress checks that a call with another fingerprint gets
// ErrInProgress during a run, and ErrMismatch after it (hazard 60).
func TestMismatch_InProgress(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (o, elsewhere *once.Once){
		"memory": func(t *testing.T) (o, elsewhere *once.Once) {
			store := memstore.New()
			return newOnce(t, store), newOnce(t, store)
		},
		"Redis": func(t *testing.T) (o, elsewhere *once.Once) {
			server := testserver.StartRedis(t)
			return onRedis(t, server.Addr), onRedis(t, server.Addr)
		},
		"PostgreSQL": func(t *testing.T) (o, elsewhere *once.Once) {
			pool := testclient.Postgres(t, testserver.StartPostgres(t).URL())
			store, err := pgstore.New(pool)
			if err == nil {
				err = pgstore.Migrate(t.Context(), pool)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			return newOnce(t, store), newOnce(t, store)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, elsewhere := open(t)
			other := charge("1")
			other.Fingerprint = []byte("11 EUR")
			out, err := o.Do(t.Context(), charge("1"), func(context.Context) (once.Answer, error) {
				refused(t, o, other, once.ErrInProgress, core.ErrBusy)
				refused(t, elsewhere, other, once.ErrInProgress, core.ErrBusy)
				return once.Answer{Value: []byte("receipt")}, nil
			})
			if err != nil || string(out.Value) != "receipt" {
				t.Errorf("got %+v, %v; want the receipt", short(out), err)
			}
			refused(t, o, other, once.ErrMismatch)
			refused(t, elsewhere, other, once.ErrMismatch)
			replayed(t, elsewhere, charge("1"), "receipt", 1)
		})
	}
}
