package stock_test

import (
	"database/sql"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/examples/recipes/stock"
)

func TestStock(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", testserver.StartPostgres(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(20)
	if _, err := db.ExecContext(t.Context(), stock.Schema+`INSERT INTO stock VALUES ('shoe', 25)`); err != nil {
		t.Fatal(err)
	}
	var sold atomic.Int32
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if ok, err := stock.Sell(t.Context(), db, "shoe", 2); err != nil {
				t.Error(err)
			} else if ok {
				sold.Add(1)
			}
		})
	}
	wg.Wait()
	for _, n := range []int{0, -1} {
		if ok, err := stock.Sell(t.Context(), db, "shoe", n); ok || err == nil {
			t.Errorf("sell %d: got %v, %v, want an error", n, ok, err)
		}
	}
	if sold.Load() != 12 {
		t.Errorf("sold 2 shoes %d times, want 12 of 25 shoes", sold.Load())
	}
}
