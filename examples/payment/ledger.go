package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"

	"github.com/lockkit/lockkit/core/once"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/httpmw"
)

// ledger stores the orders. It also counts the bank's charges, as if the bank were a
// separate service.
type ledger interface {
	read(ctx context.Context, id string) (order, error)
	finish(c *gin.Context, o order) error                        // stores a paid order and responds
	charge(ctx context.Context, id string) (int64, error)        // returns the new count of charges
	charges(ctx context.Context, id string) (n int64, err error) // returns the number of charges
}

// openLedger opens the ledger of a replica. With -store mysql or sqlite the ledger is
// in the database of the locks, and otherwise in Redis.
func openLedger(ctx context.Context, c config, closers *closers) (ledger, error) {
	if c.store == "mysql" || c.store == "sqlite" {
		db, err := c.openSQL(ctx, closers, 10*time.Second)
		if err != nil {
			return nil, err
		}
		for _, table := range []string{"payment_orders (id VARCHAR(64) PRIMARY KEY, receipt VARCHAR(100) NOT NULL)", "payment_charges (id VARCHAR(64) NOT NULL)"} {
			if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+table); err != nil {
				return nil, fmt.Errorf("%s: %w", c.store, err)
			}
		}
		return inSQL{db}, nil
	}
	client := redis.NewClient(&redis.Options{Addr: c.redis})
	closers.add(client.Close)
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("redis at %s: %w", c.redis, err)
	}
	return inRedis{client}, nil
}

func answer(c *gin.Context, o order) {
	c.JSON(http.StatusOK, gin.H{"id": o.ID, "receipt": o.Receipt})
}

type inRedis struct{ db *redis.Client }

func (l inRedis) read(ctx context.Context, id string) (order, error) {
	o := order{ID: id}
	data, err := l.db.Get(ctx, "payment:order:"+id).Bytes()
	if errors.Is(err, redis.Nil) {
		return o, nil
	}
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(data, &o)
}

func (l inRedis) finish(c *gin.Context, o order) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := l.db.Set(c.Request.Context(), "payment:order:"+o.ID, data, time.Hour).Err(); err != nil {
		return err
	}
	answer(c, o)
	return nil
}

func (l inRedis) charge(ctx context.Context, id string) (int64, error) {
	n, err := l.db.Incr(ctx, "payment:bank:"+id).Result()
	if err == nil {
		l.db.Expire(ctx, "payment:bank:"+id, time.Hour)
	}
	return n, err
}

func (l inRedis) charges(ctx context.Context, id string) (int64, error) {
	n, err := l.db.Get(ctx, "payment:bank:"+id).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return n, err
}

type inSQL struct{ db *sql.DB }

func (l inSQL) read(ctx context.Context, id string) (order, error) {
	o := order{ID: id}
	err := l.db.QueryRowContext(ctx, "SELECT receipt FROM payment_orders WHERE id = ?", id).Scan(&o.Receipt)
	if errors.Is(err, sql.ErrNoRows) {
		return o, nil
	}
	o.Paid = err == nil
	return o, err
}

// finish commits the order together with the response for its Idempotency-Key, if the
// request has one.
func (l inSQL) finish(c *gin.Context, o order) error {
	ctx := c.Request.Context()
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // has no effect after Commit
	if _, err := tx.ExecContext(ctx, "REPLACE INTO payment_orders (id, receipt) VALUES (?, ?)", o.ID, o.Receipt); err != nil {
		return err
	}
	if _, keyed := once.AttemptFromContext(ctx); !keyed {
		if err := tx.Commit(); err != nil {
			return err
		}
		answer(c, o)
		return nil
	}
	answer(c, o)
	if err := httpmw.Commit(c, sqlstore.In(tx)); err != nil {
		return err
	}
	return tx.Commit()
}

func (l inSQL) charge(ctx context.Context, id string) (int64, error) {
	if _, err := l.db.ExecContext(ctx, "INSERT INTO payment_charges (id) VALUES (?)", id); err != nil {
		return 0, err
	}
	return l.charges(ctx, id)
}

func (l inSQL) charges(ctx context.Context, id string) (n int64, err error) {
	return n, l.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM payment_charges WHERE id = ?", id).Scan(&n)
}
