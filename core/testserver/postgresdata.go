package testserver

import (
	"path/filepath"
	"testing"
)

// postgresDir creates a directory like tempDir, owned by the user of PostgreSQL.
func postgresDir(t testing.TB) string {
	t.Helper()
	dir := tempDir(t)
	if err := give(dir); err != nil {
		t.Fatalf("testserver: %v", err)
	}
	return dir
}

// postgresData is the data of a new PostgreSQL server.
var postgresData = template{as: asPostgres, initialize: func(dir string) error {
	if err := give(dir); err != nil {
		return err
	}
	return runAs(asPostgres, nil, program("initdb"), "-D", filepath.Join(dir, "data"), "-U", "postgres", "-A", "trust",
		"-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1")
}}
