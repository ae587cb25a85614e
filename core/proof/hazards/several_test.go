package hazards_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/lockkit/lockkit/core"
	"github.com/lockkit/lockkit/core/redisstore"
	"github.com/lockkit/lockkit/core/redlock"
	"github.com/lockkit/lockkit/core/sqlstore"
	"github.com/lockkit/lockkit/core/testserver"
	"github.com/lockkit/lockkit/core/zkstore"
)

// openSeveral connects to the servers of a plan whose Kind is set.
func (p plan) openSeveral() (store core.Store, end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range ends {
			f()
		}
	}
	on := func(client redis.UniversalClient) (core.Store, error) {
		opts := []redisstore.Option{redisstore.WithPrefix(p.Prefix)}
		if p.Plain {
			opts = append(opts, redisstore.WithPlainKeys())
		}
		s, err := redisstore.New(client, opts...)
		if err == nil {
			ends = append(ends, func() { _, _ = s.Close(), client.Close() })
		}
		return s, err
	}
	switch p.Kind {
	case "cluster":
		store, err = on(redis.NewClusterClient(&redis.ClusterOptions{Addrs: p.Addrs, ContextTimeoutEnabled: true}))
	case "sentinel":
		store, err = on(redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: testserver.SentinelName, SentinelAddrs: p.Addrs, ContextTimeoutEnabled: true,
		}))
	case "redlock":
		nodes := make([]core.Store, len(p.Addrs))
		var bad error
		for i, addr := range p.Addrs {
			var one error
			nodes[i], one = on(redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}))
			bad = errors.Join(bad, one)
		}
		if bad != nil {
			return nil, end, bad
		}
		s, bad := redlock.New(nodes, redlock.WithQuarantine(0), redlock.WithNodeTimeout(500*time.Millisecond))
		if bad != nil {
			return nil, end, bad
		}
		ends = slices.Insert(ends, 0, func() { _ = s.Close() })
		store = s
	case "zookeeper":
		conn, _, cannot := zk.Connect(p.Addrs, 10*time.Second, zk.WithLogInfo(false))
		if cannot != nil {
			return nil, end, cannot
		}
		s, bad := zkstore.New(conn, zkstore.WithRoot("/"+p.Prefix))
		ends = append(ends, func() {
			if s != nil {
				_ = s.Close()
			}
			conn.Close()
		})
		store, err = s, bad
	case "mysql", "sqlite":
		dialect := sqlstore.SQLite
		if p.Kind == "mysql" {
			dialect = sqlstore.MySQL
		}
		db, cannot := sql.Open(p.Kind, p.Addrs[0])
		if cannot != nil {
			return nil, end, cannot
		}
		s, bad := sqlstore.New(db, dialect)
		if bad != nil {
			return nil, end, bad
		}
		ends = append(ends, func() { _, _ = s.Close(), db.Close() })
		if bad := sqlstore.Migrate(context.Background(), db, dialect); bad != nil {
			return nil, end, bad
		}
		store = s
	default:
		err = fmt.Errorf("there is no kind %q of servers", p.Kind)
	}
	return store, end, err
}
