package shop

import (
	"context"

	"gorm.io/gorm"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/sqlstore"
)

// Depot ships orders. For each order one process at a time chooses the carrier.
type Depot struct {
	DB     *gorm.DB        // not the pool of the locks
	Locks  *core.Locker    // in a store with fencing tokens
	Tokens *sqlstore.Store // of the dialect of DB, whose database must have the tables of sqlstore
	Choose func(ctx context.Context, order string) (carrier string, err error)
}

// Ship chooses the carrier of an order under a lock, and writes the carrier. It fails
// with core.ErrLost, and writes nothing, if a later holder of the lock has written.
func (d *Depot) Ship(ctx context.Context, order string) error {
	key := core.Key("order", order)
	return d.Locks.Do(ctx, key, func(ctx context.Context) error {
		carrier, err := d.Choose(ctx, order)
		if err != nil {
			return err
		}
		lease, _ := core.LeaseFromContext(ctx)
		return d.write(ctx, key, lease.Token(), &Order{ID: order, Carrier: carrier})
	}, core.Fenced())
}

// write writes the carrier of o in a transaction that refuses the token of a stale
// holder. The holder can have been paused for longer than its lease, after its last
// check of ctx.
func (d *Depot) write(ctx context.Context, key string, token uint64, o *Order) error {
	return d.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		// The check is the first statement.
		if err := d.Tokens.CheckToken(ctx, Querier(tx), key, token); err != nil {
			return err
		}
		return tx.Model(o).Update("carrier", o.Carrier).Error
	})
}
