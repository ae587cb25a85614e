package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/internal/hub"
)

// Verdict exports verdict for the test of the table classes.
var Verdict = verdict

// Classes returns the table classes with whole SQLSTATEs as keys. For an entry that has
// only the first two characters, the key is the SQLSTATE that ends in 999.
func Classes() map[string]class {
	all := make(map[string]class)
	for code, c := range classes {
		all[(code + "999")[:5]] = c
	}
	return all
}

func (c class) Unchanged() bool { return c.unchanged }

func (c class) Kept() bool { return c.kept }

func (c class) Again() bool { return c.again }

// Scan exports scan for tests with arbitrary answers of a database.
var Scan = scan

// Connection returns the function with which a Store takes connections from pool.
func Connection(pool *pgxpool.Pool) func(ctx context.Context) (*pgxpool.Conn, error) {
	return newPlace(pool, hub.New[struct{}](nil)).connection
}
