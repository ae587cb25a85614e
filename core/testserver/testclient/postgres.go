package testclient

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Postgres returns a connection pool for url. edit may change the pool's configuration.
// The pool is closed after the test.
func Postgres(t testing.TB, url string, edit ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("testclient: %v", err)
	}
	for _, e := range edit {
		e(config)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatalf("testclient: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}
