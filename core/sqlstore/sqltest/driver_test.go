package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
)

func init() {
	sql.Register("another", another{stdlib.GetDefaultDriver()})
	sql.Register("another of mysql", another{mysql.MySQLDriver{}})
}

// another is a driver that sqlstore does not know, such as one that traces a known
// driver.
type another struct{ of driver.Driver }

func (d another) Open(dsn string) (driver.Conn, error) {
	c, err := d.of.Open(dsn)
	if err != nil {
		return nil, err
	}
	return &traced{c.(connection)}, nil
}

// counted is a connector of SQLite that records the statements of its connections.
type counted struct {
	of   driver.Driver
	dsn  string
	mu   sync.Mutex
	sent []string
}

func (d *counted) Connect(context.Context) (driver.Conn, error) {
	c, err := d.of.Open(d.dsn)
	if err != nil {
		return nil, err
	}
	return &countedConn{c, c.(driver.ExecerContext), c.(driver.QueryerContext), d}, nil
}

func (d *counted) Driver() driver.Driver { return d.of }

func (d *counted) add(query string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = append(d.sent, query)
}

// take returns the statements since the last call.
func (d *counted) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	sent := d.sent
	d.sent = nil
	return sent
}

type countedConn struct {
	driver.Conn
	exec  driver.ExecerContext
	query driver.QueryerContext
	by    *counted
}

func (c *countedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.by.add(query)
	return c.exec.ExecContext(ctx, query, args)
}

func (c *countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.by.add(query)
	return c.query.QueryContext(ctx, query, args)
}

// connection is a connection of a known driver.
type connection interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
}

type traced struct{ of connection }

func (c *traced) Prepare(query string) (driver.Stmt, error) { return c.of.Prepare(query) }

func (c *traced) Close() error { return c.of.Close() }

func (c *traced) Begin() (driver.Tx, error) {
	return c.of.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *traced) CheckNamedValue(v *driver.NamedValue) error { return c.of.CheckNamedValue(v) }

func (c *traced) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.of.ExecContext(ctx, query, args)
}

func (c *traced) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.of.QueryContext(ctx, query, args)
}
