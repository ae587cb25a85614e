package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
)

const checkLimit = 10 * time.Second

var errNoAnswer = errors.New("no answer in time")

// leastPool is the minimum size of a pool in which locks can be extended while other
// calls wait.
const leastPool = 4

// Check reports whether the database is fit to store locks, and tries a lock on a key
// of its own. It returns nil, or one error with the faults and the remedy of each
// fault. A remedy is, for example, the GRANT for a missing right, or the ALTER TABLE
// for a table that row-level security hides. The error matches store.ErrUnavailable if
// the database could not be reached or the tables cannot be read. It matches
// store.ErrUnsupported if the tables are of another version.
func (s *Store) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, errNoAnswer)
	defer cancel()
	p := s.place
	unread := func(err error) error {
		// If the server does not answer, or a transaction is open, the tables are not
		// the cause.
		var network net.Error
		if errors.As(err, &network) && errors.Is(err, store.ErrUnavailable) || errors.Is(err, table.ErrOpen) {
			return fmt.Errorf("sqlstore: check: %w", err)
		}
		return fmt.Errorf("sqlstore: check: the tables cannot be read as those of %s: call Migrate, "+
			"or GRANT SELECT, INSERT, UPDATE, DELETE on them: %w", p.Dialect.Name(), unavailable(err))
	}
	if old := p.Outdated(ctx); old != "" {
		return errors.New("sqlstore: check: " + old)
	}
	v, err := installed(ctx, p)
	if lacks := lacking(ctx, p); lacks != nil {
		return lacks
	}
	if remedy := p.Hidden(ctx); remedy != "" {
		return errors.New("sqlstore: check: " + remedy)
	}
	if errors.Is(err, rows.ErrInMemory) {
		return fmt.Errorf("sqlstore: check: %w", rows.ErrInMemory)
	}
	if err != nil {
		return unread(err)
	}
	if v != dialect.SchemaVersion {
		return fmt.Errorf("sqlstore: check: the tables are of version %d, not %d: %w", v, dialect.SchemaVersion, store.ErrUnsupported)
	}
	faults, err := faultsOf(ctx, p)
	if err != nil {
		return unread(err)
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	return s.try(ctx)
}

// unavailable returns err so that it matches store.ErrUnavailable, and has the text of
// store.ErrUnavailable once.
func unavailable(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// lacking returns an error that names the rights that the user lacks, or nil. If the
// right to the schema is missing, the error names only that right.
func lacking(ctx context.Context, p *rows.Place) error {
	var lacks []error
	for _, right := range p.Dialect.Rights() {
		if _, err := p.Change(ctx, dialect.Statement{Text: right.Try}); rows.IsDenied(err) {
			lacks = append(lacks, errors.New("sqlstore: check: the user lacks a right: "+right.Grant))
			if strings.HasPrefix(right.Grant, "GRANT USAGE") {
				break
			}
		}
	}
	return errors.Join(lacks...)
}

func faultsOf(ctx context.Context, p *rows.Place) (faults []error, err error) {
	probes := p.Dialect.Probes()
	conditions, found := make([]string, len(probes)), make([]sql.NullBool, len(probes))
	to := make([]any, len(probes))
	for i, probe := range probes {
		conditions[i], to[i] = probe.If, &found[i]
	}
	if err := table.One(ctx, p, dialect.Statement{Text: "SELECT " + strings.Join(conditions, ", ")}, to...); err != nil {
		return nil, err
	}
	for i, probe := range probes {
		if found[i].Bool {
			faults = append(faults, errors.New("sqlstore: check: "+probe.Advice))
		}
	}
	network, err := p.Network(ctx)
	if err != nil {
		return nil, err
	}
	if network != "" {
		faults = append(faults, fmt.Errorf("sqlstore: check: the file is on a network file system (%s), whose locks other machines may not see: "+
			"put it on a disk of the machine", network))
	}
	if most := p.DB.Stats().MaxOpenConnections; most > 0 && most < leastPool && p.Dialect != SQLite.Dialect {
		faults = append(faults, fmt.Errorf("sqlstore: check: a pool of %d connections (at least %d): give the locks a *sql.DB of their own", most, leastPool))
	}
	return faults, nil
}

// try takes and releases a key that nobody else uses, and deletes its row, as a sweep
// does.
func (s *Store) try(ctx context.Context) error {
	c := store.Claim{
		Key: "lockkit check " + rand.Text(), Owner: rand.Text(), Lease: rand.Text(), Weight: store.All, Limit: store.All, TTL: 10 * time.Second,
	}
	if _, err := s.Acquire(ctx, c); err != nil {
		return fmt.Errorf("sqlstore: check: %w", err)
	}
	state, err := s.Look(ctx, c.Key)
	if err != nil {
		return fmt.Errorf("sqlstore: check: %w", err)
	}
	if err := s.Release(ctx, c); err != nil {
		return fmt.Errorf("sqlstore: check: %w", err)
	}
	elsewhere, err := s.place.ReadsElsewhere(ctx, c.Key)
	if err != nil {
		return fmt.Errorf("sqlstore: check: %w", err)
	}
	if elsewhere || len(state.Holds) != 1 {
		return errors.New("sqlstore: check: a replica answers reads, and may lack a granted lock: send all statements to one server")
	}
	return s.sweep(ctx, c.Key)
}

// sweep deletes the row of a key that nobody else uses.
func (s *Store) sweep(ctx context.Context, key string) error {
	e, err := s.place.Load(ctx, key, casstore.Want{})
	if err == nil {
		err = s.place.Raise(ctx, 0)
	}
	deleted := 0
	if err == nil {
		deleted, err = s.place.Delete(ctx, []casstore.Item{{Key: key, Entry: e}})
	}
	switch {
	case err != nil:
		return fmt.Errorf("sqlstore: check: rows cannot be deleted, they would grow in number: %w", err)
	case deleted != 1:
		return errors.New("sqlstore: check: a row cannot be deleted, rows would grow in number: a trigger or row-level security may keep it")
	}
	return nil
}
