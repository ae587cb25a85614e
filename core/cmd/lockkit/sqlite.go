//go:build ((amd64 || arm64) && (darwin || freebsd || linux || openbsd || windows)) || (linux && (386 || arm || ppc64le || riscv64 || s390x))

package main

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"modernc.org/sqlite"

	"github.com/lockkit/lockkit/core/sqlstore"
)

// openSQLite opens an existing file. It uses the connection settings of a service. The
// file has the journal mode, which check verifies.
func openSQLite(path string) (*storeClient, error) {
	switch file, err := os.Stat(path); {
	case path == "" || strings.HasPrefix(path, ":memory:"):
		return nil, errors.New("the form is sqlite:///path/to/file: no other process sees a database in memory")
	case err != nil:
		return nil, err
	case !file.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", path)
	}
	file := url.URL{Path: path}
	db, err := sql.Open("sqlite", "file:"+file.EscapedPath()+"?mode=rw&_pragma=busy_timeout(1000)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	return openSQL(db, sqlstore.SQLite)
}

// fromSQLite reports whether err is an error of SQLite.
func fromSQLite(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e)
}
