package sqltest

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/stdlib"
)

func init() {
	sql.Register("another", another{stdlib.GetDefaultDriver()})
	sql.Register("another of mysql", another{mysql.MySQLDriver{}})
}

// another is an unknown driver, such as one that traces another.
type another struct{ of driver.Driver }

func (d another) Open(dsn string) (driver.Conn, error) {
	c, err := d.of.Open(dsn)
	if err != nil {
		return nil, err
	}
	return &traced{c.(connection)}, nil
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
