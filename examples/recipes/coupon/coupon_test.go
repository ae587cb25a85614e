package coupon_test

import (
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/examples/recipes/coupon"
)

func TestRedeem(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", testserver.StartPostgres(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(20)
	if _, err := db.ExecContext(t.Context(), coupon.Schema); err != nil {
		t.Fatal(err)
	}
	var firsts atomic.Int32
	redeem := func(on coupon.DB, account, order string) bool {
		ok, first, err := coupon.Redeem(t.Context(), on, "TEN", account, order)
		if err != nil || first && !ok {
			t.Errorf("got %v, %v, %v", ok, first, err)
		}
		if first {
			firsts.Add(1)
		}
		return ok
	}

	var redeemed atomic.Int32
	var winner atomic.Value
	var wg sync.WaitGroup
	for i := range 40 {
		order := fmt.Sprint("order ", i)
		wg.Go(func() {
			if redeem(db, "ann", order) {
				redeemed.Add(1)
				winner.Store(order)
			}
		})
	}
	wg.Wait()
	if n := redeemed.Load(); n != 1 {
		t.Fatalf("40 orders of one account: redeemed %d times, want 1", n)
	}
	count := func(query string) (n int) {
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	if n := count(`SELECT count(*) FROM redemptions`); n != 1 {
		t.Errorf("40 orders of one account: got %d rows, want 1", n)
	}
	if !redeem(db, "ann", winner.Load().(string)) {
		t.Error("the same order again: got false")
	}
	if n := firsts.Load(); n != 1 {
		t.Errorf("a new coupon was used %d times, want 1", n)
	}
	if !redeem(db, "bob", "order 50") {
		t.Error("another account: got false")
	}

	// An order is rolled back while another order of the account waits for its row.
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !redeem(tx, "cid", "order 60") {
		t.Error("in a transaction: got false")
	}
	waits := make(chan bool)
	go func() { waits <- redeem(db, "cid", "order 61") }()
	testserver.Eventually(t, time.Minute, "the other order waits for the row", func() bool {
		return count(`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO redemptions%'`) == 1
	})
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if !<-waits {
		t.Error("after a rollback: got false")
	}
	if redeem(db, "cid", "order 60") {
		t.Error("the order that was rolled back: got true, and the coupon counts for another one")
	}
}
