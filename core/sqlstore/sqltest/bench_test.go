package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
)

// together runs fn b.N times in n goroutines, and reports the cycles per second.
func together(b *testing.B, n int, fn func(ctx context.Context, goroutine int) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	errs := make([]error, n)
	var wg sync.WaitGroup
	b.ResetTimer()
	for g := range n {
		wg.Go(func() {
			for errs[g] == nil && left.Add(-1) >= 0 {
				errs[g] = fn(context.Background(), g)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

func newLocker(b *testing.B, d database) *core.Locker {
	b.Helper()
	_, db := d.place(b)
	db.SetMaxIdleConns(64) // by default database/sql keeps 2
	locks, err := core.New(newStore(b, db, d), core.WithObserver(nil))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// BenchmarkMariaDB compares free locks with GET_LOCK, and measures one key that all
// goroutines acquire. A lock of GET_LOCK ends with its connection, and has no TTL, no
// token and no readers.
func BenchmarkMariaDB(b *testing.B) {
	d := database{sqlstore.MySQL, "mysql", mariaDB.Get(b).NewDatabase(b).DSN()}
	locks, db := newLocker(b, d), d.open(b)
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("own keys lockkit %d", n), func(b *testing.B) {
			together(b, n, func(ctx context.Context, g int) error { return cycle(ctx, locks, fmt.Sprint("own:", g)) })
		})
		b.Run(fmt.Sprintf("own keys user locks %d", n), func(b *testing.B) {
			db.SetMaxIdleConns(n)
			together(b, n, func(ctx context.Context, g int) error { return getLock(ctx, db, fmt.Sprint("own:", g)) })
		})
		b.Run(fmt.Sprintf("one key lockkit %d", n), func(b *testing.B) {
			together(b, n, func(ctx context.Context, _ int) error { return cycle(ctx, locks, "one:1") })
		})
	}
}

func cycle(ctx context.Context, locks *core.Locker, key string) error {
	lease, err := locks.Acquire(ctx, key, core.TTL(long))
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

func getLock(ctx context.Context, db *sql.DB, name string) error {
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, statement := range []string{"SELECT GET_LOCK('" + name + "', 10)", "SELECT RELEASE_LOCK('" + name + "')"} {
		var ok bool
		if err := c.QueryRowContext(ctx, statement).Scan(&ok); err != nil || !ok {
			return fmt.Errorf("%s: %v, %w", statement, ok, err)
		}
	}
	return nil
}

// counting counts the Saves that won, and the Saves that lost to another Store.
type counting struct {
	*rows.Place
	won, lost *atomic.Int64
}

func (p counting) Save(ctx context.Context, key string, old, e casstore.Entry) (bool, error) {
	ok, err := p.Place.Save(ctx, key, old, e)
	if ok {
		p.won.Add(1)
	} else if err == nil {
		p.lost.Add(1)
	}
	return ok, err
}

// BenchmarkReaders measures readers of one key in four Stores: the number of Saves that
// lose for each Save that wins.
func BenchmarkReaders(b *testing.B) {
	d := database{sqlstore.MySQL, "mysql", mariaDB.Get(b).NewDatabase(b).DSN()}
	const processes = 4
	var won, lost atomic.Int64
	var stores [processes]*casstore.Store
	for i := range stores {
		place, _ := d.place(b)
		s, err := casstore.New(counting{place, &won, &lost})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = s.Close() })
		stores[i] = s
	}
	together(b, 4*processes, func(ctx context.Context, g int) error {
		c := store.Claim{Key: "one:1", Owner: rand.Text(), Lease: rand.Text(), Weight: 1, Limit: store.All, TTL: long}
		s := stores[g%processes]
		if _, err := s.Acquire(ctx, c); err != nil {
			return err
		}
		return s.Release(ctx, c)
	})
	b.ReportMetric(float64(lost.Load())/float64(won.Load()), "lost/won")
}

// BenchmarkCrowd measures one more reader of a key that other readers hold: its cycles,
// and the bytes of the row, which each of its two writes replaces.
func BenchmarkCrowd(b *testing.B) {
	for table, d := range map[string]database{
		"lockkit_locks": {sqlstore.MySQL, "mysql", mariaDB.Get(b).NewDatabase(b).DSN()},
		"lockkit.locks": {sqlstore.PostgreSQL, "pgx", postgres.Get(b).NewDatabase(b).URL()},
	} {
		s, db := d.store(b), d.open(b)
		readers := 0
		for _, n := range []int{0, 10, 200, 1000} {
			ctx := context.Background()
			reader := func() store.Claim {
				return store.Claim{Key: "one:1", Owner: rand.Text(), Lease: rand.Text(), Weight: 1, Limit: store.All, TTL: 24 * time.Hour}
			}
			for ; readers < n; readers++ {
				if _, err := s.Acquire(ctx, reader()); err != nil {
					b.Fatal(err)
				}
			}
			b.Run(fmt.Sprint(d.driver, " ", n), func(b *testing.B) {
				together(b, 1, func(ctx context.Context, _ int) error {
					c := reader()
					if _, err := s.Acquire(ctx, c); err != nil {
						return err
					}
					return s.Release(ctx, c)
				})
				var size float64
				if err := db.QueryRowContext(ctx, "SELECT coalesce(max(length(state)), 0) FROM "+table).Scan(&size); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(size, "row-bytes")
			})
		}
	}
}
