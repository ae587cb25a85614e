package main

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/lockkit/lockkit/core/sqlstore"
)

// openMySQL opens a store on mysql://user:password@host:3306/database?parameters, or the
// same with mariadb://.
func openMySQL(raw string) (*storeClient, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	host, port, database := u.Hostname(), u.Port(), strings.Trim(u.Path, "/")
	if host == "" || database == "" {
		return nil, fmt.Errorf("is not of the form %s://user:password@host:3306/database", u.Scheme)
	}
	if port == "" {
		port = "3306"
	}
	// User, password and database name may contain any characters, so they are not part
	// of the parsed text.
	c, err := mysql.ParseDSN("tcp(" + net.JoinHostPort(host, port) + ")/?" + u.RawQuery)
	if err != nil {
		return nil, err
	}
	c.User, c.DBName = u.User.Username(), database
	c.Passwd, _ = u.User.Password()
	if c.Params == nil {
		c.Params = make(map[string]string)
	}
	if _, set := c.Params["innodb_lock_wait_timeout"]; !set {
		c.Params["innodb_lock_wait_timeout"] = "1" // on MySQL the store needs it
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return openSQL(sql.OpenDB(connector), sqlstore.MySQL)
}

func openSQL(db *sql.DB, d sqlstore.Dialect) (*storeClient, error) {
	s, err := sqlstore.New(db, d)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &storeClient{Store: s, connected: atOnce, check: s.Check, close: func() { _ = s.Close(); _ = db.Close() }}, nil
}
