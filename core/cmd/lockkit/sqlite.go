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
		return nil, errors.New("is not of the form sqlite:///path/to/file; other processes cannot see a database in memory")
	case err != nil:
		return nil, err
	case !file.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	}
	file := url.URL{Path: path}
	db, err := sql.Open("sqlite", "file:"+file.EscapedPath()+"?mode=rw&_pragma=busy_timeout(1000)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	return openSQL(db, sqlstore.SQLite)
}

func fromSQLite(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e)
}
