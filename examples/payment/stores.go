package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/pgstore"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/zkstore"
)

// places are the stores for the locks, by the value of -store. Each function opens a
// store with its own connections, and adds the functions that close them to closers.
var places = map[string]func(ctx context.Context, c config, closers *closers) (core.Store, error){
	"redis": func(ctx context.Context, c config, closers *closers) (core.Store, error) {
		return openRedis(ctx, c.redis, closers)
	},
	"redlock":   openRedlock,
	"zookeeper": openZooKeeper,
	"postgres":  openPostgres,
	"mysql":     openSQL,
	"sqlite":    openSQL,
}

func openRedis(ctx context.Context, addr string, closers *closers) (*redisstore.Store, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	closers.add(client.Close)
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("redis at %s: %w", addr, err)
	}
	store, err := redisstore.New(client)
	if err != nil {
		return nil, err
	}
	closers.add(store.Close)
	return store, nil
}

// openRedlock opens a store on the nodes of -redlock. It does not check that the nodes
// are reachable, because a minority of them may be down.
func openRedlock(_ context.Context, c config, closers *closers) (core.Store, error) {
	var nodes []core.Store
	for addr := range strings.SplitSeq(c.redlock, ",") {
		client := redis.NewClient(&redis.Options{Addr: addr})
		closers.add(client.Close)
		node, err := redisstore.New(client)
		if err != nil {
			return nil, err
		}
		closers.add(node.Close)
		nodes = append(nodes, node)
	}
	store, err := redlock.New(nodes, redlock.WithFencing())
	if err != nil {
		return nil, err
	}
	closers.add(store.Close)
	return store, nil
}

func openZooKeeper(ctx context.Context, c config, closers *closers) (core.Store, error) {
	conn, events, err := zk.Connect(strings.Split(c.zookeeper, ","), 10*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		return nil, err
	}
	closers.add(func() error { conn.Close(); return nil })
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for conn.State() != zk.StateHasSession {
		select {
		case <-events:
		case <-ctx.Done():
			return nil, fmt.Errorf("zookeeper at %s: no session: %w", c.zookeeper, ctx.Err())
		}
	}
	store, err := zkstore.New(conn)
	if err != nil {
		return nil, err
	}
	closers.add(store.Close)
	return store, nil
}

func openPostgres(ctx context.Context, c config, closers *closers) (core.Store, error) {
	pool, err := pgxpool.New(ctx, c.postgres)
	if err != nil {
		return nil, err
	}
	closers.add(func() error { pool.Close(); return nil })
	// A real service would migrate when it is deployed, not at every start.
	if err := pgstore.Migrate(ctx, pool); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	store, err := pgstore.New(pool)
	if err != nil {
		return nil, err
	}
	closers.add(store.Close)
	return store, nil
}

// openSQL opens a separate pool for the locks, so that no transaction on orders uses the
// locks' connections.
func openSQL(ctx context.Context, c config, closers *closers) (core.Store, error) {
	pool, err := c.openSQL(ctx, closers, time.Second)
	if err != nil {
		return nil, err
	}
	dialect := sqlstore.MySQL
	if c.store == "sqlite" {
		dialect = sqlstore.SQLite
	}
	// A real service would migrate when it is deployed, not at every start.
	if err := sqlstore.Migrate(ctx, pool, dialect); err != nil {
		return nil, fmt.Errorf("%s: %w", c.store, err)
	}
	store, err := sqlstore.New(pool, dialect)
	if err != nil {
		return nil, err
	}
	closers.add(store.Close)
	return store, nil
}

// openSQL opens a pool. With SQLite, a statement waits for the writers before it for at
// most busy.
func (c config) openSQL(ctx context.Context, closers *closers, busy time.Duration) (*sql.DB, error) {
	dsn := c.mysql
	if c.store == "sqlite" {
		dsn = fmt.Sprintf("file:%s?_txlock=immediate&_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)",
			c.sqlite, busy.Milliseconds())
	}
	pool, err := sql.Open(c.store, dsn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.store, err)
	}
	closers.add(pool.Close)
	pool.SetMaxIdleConns(20) // by default database/sql keeps only 2, and dials for further calls
	if err := pool.PingContext(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", c.store, err)
	}
	return pool, nil
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// closers are functions that Close calls in reverse order.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

// Close calls the functions.
func (c *closers) Close() (err error) {
	for i := len(*c) - 1; i >= 0; i-- {
		err = errors.Join(err, (*c)[i]())
	}
	*c = nil
	return err
}
