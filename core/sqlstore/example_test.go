package sqlstore_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/sqlstore"
)

// The function under the lock updates an order in a transaction. If a later holder has
// already checked its token for this order, the transaction is refused.
func Example() {
	ctx := context.Background()
	// A program also imports the driver: _ "github.com/go-sql-driver/mysql".
	const dsn = "app@tcp(db:3306)/shop"
	orders, err := sql.Open("mysql", dsn)
	if err != nil {
		log.Fatal(err)
	}
	defer orders.Close()
	pool, err := sql.Open("mysql", dsn) // for the locks alone
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	pool.SetMaxOpenConns(20)
	pool.SetMaxIdleConns(20)
	if err := sqlstore.Migrate(ctx, pool, sqlstore.MySQL); err != nil {
		log.Fatal(err)
	}
	store, err := sqlstore.New(pool, sqlstore.MySQL)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close() // before the pool
	if err := store.Check(ctx); err != nil {
		log.Fatal(err)
	}
	locks, err := core.New(store)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx) // before the store

	key := core.Key("order", "42")
	err = locks.Do(ctx, key, func(ctx context.Context) error {
		lease, _ := core.LeaseFromContext(ctx)
		tx, err := orders.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := store.CheckToken(ctx, tx, key, lease.Token()); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'paid' WHERE id = 42"); err != nil {
			return err
		}
		return tx.Commit()
	}, core.Fenced())
	if err != nil {
		log.Print(err)
	}
}

// The run commits the change of an order together with the run's answer. A repeated
// request gets that answer.
func ExampleIn() {
	var (
		orders *sql.DB    // the database of the orders and of the locks
		runs   *once.Once // of a Locker on a sqlstore.Store
	)
	pay := func(ctx context.Context, key string) (once.Outcome, error) {
		return runs.Do(ctx, once.Call{Name: "pay", Key: key}, func(ctx context.Context) (once.Answer, error) {
			tx, err := orders.BeginTx(ctx, nil)
			if err != nil {
				return once.Answer{}, err
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'paid' WHERE id = 42"); err != nil {
				return once.Answer{}, err
			}
			answer := once.Answer{Value: []byte("receipt 42")}
			if err := once.Commit(ctx, sqlstore.In(tx), answer); err != nil { // the last statement
				return once.Answer{}, err
			}
			return answer, tx.Commit()
		})
	}
	_ = pay
}
