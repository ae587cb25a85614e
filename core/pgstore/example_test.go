package pgstore_test

import (
	"context"
	"log"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/pgstore"
)

// The function under the lock updates an order in a transaction. If a later holder has
// replaced this one, the transaction is refused.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db/shop?connect_timeout=3")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	store, err := pgstore.New(pool)
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
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := pgstore.CheckToken(ctx, tx, key, lease.Token()); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE orders SET state = 'paid' WHERE id = 42")
			return err
		})
	}, core.Fenced())
	if err != nil {
		log.Print(err)
	}
}
