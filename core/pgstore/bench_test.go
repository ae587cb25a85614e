package pgstore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/store"
	"github.com/lockkit/lockkit/core/testserver/testclient"
)

// formerStore is a store of version 6 with the two calls of a usual lock. Like the
// store of that version it sends the text of a function's call as one message.
type formerStore struct {
	store.Store
	pool *pgxpool.Pool
}

func (s formerStore) Acquire(ctx context.Context, c store.Claim) (store.Grant, error) {
	err := s.call(ctx, fmt.Sprintf("SELECT * FROM lockkit.acquire(decode('%x','hex'),decode('%x','hex'),decode('%x','hex'),decode('','hex'),"+
		"%d::bigint,%d::bigint,%d::bigint,false,false,0::bigint,'',NULL::bytea,0::bigint)", c.Key, c.Lease, c.Owner, c.Weight, c.Limit, c.TTL.Milliseconds()))
	return store.Grant{Owner: c.Owner, Token: 64}, err
}

func (s formerStore) Release(ctx context.Context, c store.Claim) error {
	return s.call(ctx, fmt.Sprintf("SELECT * FROM lockkit.release(decode('%x','hex'),decode('%x','hex'),"+
		"%d::bigint,0::bigint,false,NULL::bigint,NULL::boolean,NULL::bigint,NULL::bytea)", c.Key, c.Lease, c.TTL.Milliseconds()))
}

// call sends text, and fails unless the function returns the code 0.
func (s formerStore) call(ctx context.Context, text string) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	results, err := conn.Conn().PgConn().Exec(ctx, text).ReadAll()
	if err == nil && string(results[0].Rows[0][0]) != "0" {
		err = fmt.Errorf("%s: got code %s, want 0", text, results[0].Rows[0][0])
	}
	return err
}

// BenchmarkVersion6 compares the usual lock with version 6 of the schema, whose
// functions decided in the database. One iteration is a window of 0.3 s of each
// version, on one server with durable commits. The ratio is the median of the
// iterations, so run it with -benchtime 20x.
func BenchmarkVersion6(b *testing.B) {
	formerURL := durable.Get(b).NewDatabase(b).URL("pool_max_conns=64")
	newFormer(b, formerURL)
	old := formerStore{pool: testclient.Postgres(b, formerURL)}
	pool := testclient.Postgres(b, migrated(b, durable.Get(b).NewDatabase(b)).URL("pool_max_conns=64"))

	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprint("store ", n), func(b *testing.B) {
			inTurns(b, n, storeCycle(old), storeCycle(newStore(b, pool)))
		})
		b.Run(fmt.Sprint("engine ", n), func(b *testing.B) {
			inTurns(b, n, lockerCycle(b, old), lockerCycle(b, newStore(b, pool)))
		})
	}
}

func storeCycle(s store.Store) func(ctx context.Context, key string) error {
	return func(ctx context.Context, key string) error {
		c := exclusive(key)
		c.Lease, c.Owner = rand.Text(), rand.Text()
		if _, err := s.Acquire(ctx, c); err != nil {
			return err
		}
		return s.Release(ctx, c)
	}
}

func lockerCycle(b *testing.B, s store.Store) func(ctx context.Context, key string) error {
	locks, err := core.New(s, core.WithObserver(nil))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = locks.Close(context.Background()) })
	return func(ctx context.Context, key string) error {
		lease, err := locks.Acquire(ctx, "own:"+key)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}
}

// inTurns runs windows of both cycles in n goroutines with keys of their own, and
// reports the rates and their ratio.
func inTurns(b *testing.B, n int, before, after func(ctx context.Context, key string) error) {
	var rates [2][]float64
	var ratios []float64
	for _, warm := range []func(ctx context.Context, key string) error{before, after} {
		window(b, n, warm)
	}
	for b.Loop() {
		was, is := window(b, n, before), window(b, n, after)
		rates[0], rates[1] = append(rates[0], was), append(rates[1], is)
		ratios = append(ratios, is/was)
	}
	b.ReportMetric(quartile(rates[0], 2), "v6-cycles/s")
	b.ReportMetric(quartile(rates[1], 2), "v7-cycles/s")
	b.ReportMetric(quartile(ratios, 2), "v7/v6")
	b.ReportMetric(quartile(ratios, 1), "v7/v6-q1")
	b.ReportMetric(quartile(ratios, 3), "v7/v6-q3")
}

// window returns the cycles per second of n goroutines.
func window(b *testing.B, n int, cycle func(ctx context.Context, key string) error) float64 {
	b.Helper()
	var cycles atomic.Int64
	errs := make([]error, n)
	begun := time.Now()
	var wg sync.WaitGroup
	for g := range n {
		wg.Go(func() {
			for errs[g] == nil && time.Since(begun) < 300*time.Millisecond {
				errs[g] = cycle(context.Background(), fmt.Sprint(g))
				cycles.Add(1)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	return float64(cycles.Load()) / time.Since(begun).Seconds()
}

func quartile(of []float64, q int) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[(len(of)-1)*q/4]
}
