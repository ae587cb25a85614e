package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// checkLimit is how long a Check takes at most.
const checkLimit = 5 * callLimit

// leastPool is how many connections a pool has that can extend locks while others wait.
const leastPool = 4

// Check reports whether the database is fit to keep locks, and tries them on a key of its
// own. It returns one error that lists what is unfit and what to do about it. The error
// matches store.ErrUnavailable if the database could not be asked.
func (p *Place) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, errNoAnswer)
	defer cancel()
	v, err := installed(ctx, p.db, p.d)
	if err != nil {
		return fmt.Errorf("sqlstore: check: %w: the tables cannot be read as those of %s: call Migrate, "+
			"or GRANT SELECT, INSERT, UPDATE, DELETE on them: %w", store.ErrUnavailable, p.d.Name(), err)
	}
	if v < dialect.SchemaVersion {
		return fmt.Errorf("sqlstore: check: the tables have version %d, %d is needed: call Migrate", v, dialect.SchemaVersion)
	}
	faults, err := p.faults(ctx)
	if err != nil {
		return fmt.Errorf("sqlstore: check: %w: %w", store.ErrUnavailable, err)
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	return p.try(ctx)
}

// faults are what speaks against the database, and against the pool.
func (p *Place) faults(ctx context.Context) (faults []error, err error) {
	probes := p.d.Probes()
	conditions, found := make([]string, len(probes)), make([]sql.NullBool, len(probes))
	to := make([]any, len(probes))
	for i, probe := range probes {
		conditions[i], to[i] = probe.If, &found[i]
	}
	if err := one(ctx, p.db, dialect.Statement{Text: "SELECT " + strings.Join(conditions, ", ")}, to...); err != nil {
		return nil, err
	}
	for i, probe := range probes {
		if found[i].Bool {
			faults = append(faults, errors.New("sqlstore: check: "+probe.Advice))
		}
	}
	if most := p.db.Stats().MaxOpenConnections; most > 0 && most < leastPool && p.d.Dialect != SQLite.Dialect {
		faults = append(faults, fmt.Errorf("sqlstore: check: a pool of %d connections, %d are needed: a *sql.DB of its own for the locks", most, leastPool))
	}
	return faults, nil
}

// try takes and releases a key that nobody else uses.
func (p *Place) try(ctx context.Context) error {
	c := store.Claim{
		Key: "lockkit check " + rand.Text(), Owner: rand.Text(), Lease: rand.Text(), Weight: store.All, Limit: store.All, TTL: 10 * time.Second,
	}
	_, taken, err := p.Take(ctx, c)
	if err != nil {
		return fmt.Errorf("sqlstore: check: %w", err)
	}
	row, err := p.Load(ctx, c.Key, false)
	if err != nil {
		return fmt.Errorf("sqlstore: check: %w", err)
	}
	given, err := p.Give(ctx, c)
	if err != nil {
		return fmt.Errorf("sqlstore: check: %w", err)
	}
	if !taken || !given || string(row.Lease) != c.Lease {
		return errors.New("sqlstore: check: a lock that was taken is not there: reads may come from a replica, send all statements to one server")
	}
	return nil
}
