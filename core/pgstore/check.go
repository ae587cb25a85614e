package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

const checkLimit = 5 * callLimit

// Check reports whether the server is fit to store locks. It sends queries. If they
// find no fault, it takes, extends, watches and releases a key of its own. The key is
// free again within seconds. It returns nil, or one error with the faults that it has
// found and the remedy of each:
//
//   - the schema is missing or older than this package: call Migrate;
//   - the schema is newer than this package: update the program;
//   - the server is a standby or read-only, or is older than PostgreSQL 14;
//   - a subscription writes the tables: the server is a logical replica;
//   - a crash would lose locks: fsync is off, or a table is not logged;
//   - the server's clock is more than a minute behind the tokens of its grants;
//   - the user lacks rights: the error has each missing GRANT;
//   - row-level security hides a table: the error has the ALTER TABLE that shows it;
//   - a held key is granted a second time;
//   - wake-ups do not arrive, for a Store that uses them.
//
// The error matches store.ErrUnavailable if the server could not be reached or refused a
// query.
func (s *Store) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, errNoAnswer)
	defer cancel()
	faults, err := s.inspect(ctx)
	if err != nil {
		return wrap("check", err)
	}
	if len(faults) > 0 {
		all := make([]error, len(faults))
		for i, f := range faults {
			all[i] = errors.New("pgstore: check: " + f)
		}
		return errors.Join(all...)
	}
	return s.try(ctx)
}

// inspect returns the faults of the server. A fault that prevents later queries is
// returned alone.
func (s *Store) inspect(ctx context.Context) ([]string, error) {
	conn, err := s.place.connection(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: no connection: %w", store.ErrUnavailable, err)
	}
	defer conn.Release()
	pg := conn.Conn().PgConn()
	if err := supported(pg); err != nil {
		return []string{err.Error()}, nil
	}
	probes := s.place.Dialect.Probes()
	// If transactions are SERIALIZABLE by default, a standby refuses every other query.
	standby, err := value(ctx, pg, "BEGIN ISOLATION LEVEL READ COMMITTED;SELECT pg_catalog.pg_is_in_recovery()"+commit, 3)
	if err != nil {
		return nil, err
	}
	if standby == "t" {
		return []string{probes[0].Advice}, nil
	}
	lacks, err := value(ctx, pg, rights, 1)
	if err != nil {
		return nil, err
	}
	if lacks != "" {
		return []string{"the user lacks rights: " + lacks}, nil
	}
	secured, err := hidden(ctx, pg, "locks", "version")
	if err != nil {
		return nil, err
	}
	if secured != "" {
		return []string{secured}, nil
	}
	v, err := installed(ctx, pg)
	if err != nil {
		return nil, err
	}
	switch {
	case v < dialect.SchemaVersion:
		return []string{fmt.Sprintf("the schema lockkit has version %d, not %d: call pgstore.Migrate", v, dialect.SchemaVersion)}, nil
	case v > dialect.SchemaVersion:
		return []string{fmt.Sprintf("the schema lockkit has version %d, not %d: update this program", v, dialect.SchemaVersion)}, nil
	}
	conditions := make([]string, len(probes))
	for i, probe := range probes {
		conditions[i] = probe.If
	}
	found, err := results(ctx, pg, "SELECT "+strings.Join(conditions, ","), 1)
	if err != nil {
		return nil, err
	}
	var faults []string
	if len(found.rows) != 1 || len(found.rows[0]) != len(probes) {
		return nil, verdict(errors.New("the answer does not have one value for each condition"))
	}
	for i, probe := range probes {
		if string(found.rows[0][i]) == "t" {
			faults = append(faults, probe.Advice)
		}
	}
	return faults, nil
}

// rights selects the GRANT statements of the user's missing rights, as one text. The
// query reads only the catalogs, which every user may read. The sweep is the reason for
// DELETE on the locks and UPDATE on the version.
const rights = `SELECT coalesce(pg_catalog.string_agg('GRANT ' || lacks || ' TO ' || pg_catalog.quote_ident(current_user), '; ' ORDER BY place), '')
	FROM (
		SELECT 0 AS place, 'USAGE ON SCHEMA lockkit' AS lacks FROM pg_catalog.pg_namespace n
			WHERE n.nspname = 'lockkit' AND NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
		UNION ALL
		SELECT min(v.place), pg_catalog.string_agg(v.privilege, ', ' ORDER BY v.place) || ' ON lockkit.' || c.relname
			FROM (VALUES (1, 'locks', 'SELECT'), (2, 'locks', 'INSERT'), (3, 'locks', 'UPDATE'), (4, 'locks', 'DELETE'),
				(5, 'version', 'SELECT'), (6, 'version', 'UPDATE')) v (place, relation, privilege)
			JOIN pg_catalog.pg_class c ON c.relname = v.relation
			JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'lockkit'
			WHERE c.relkind = 'r' AND NOT pg_catalog.has_table_privilege(c.oid, v.privilege) GROUP BY c.relname
	) needed`

// hidden returns the remedy if row-level security hides all rows of some of the tables
// from the user, and otherwise "".
func hidden(ctx context.Context, pg *pgconn.PgConn, tables ...string) (string, error) {
	return value(ctx, pg, dialect.PostgreSQL{}.Hidden(tables...).Text, 1)
}

func (s *Store) try(ctx context.Context) error {
	claim := store.Claim{
		Key: "check:" + rand.Text(), Owner: rand.Text(), Lease: rand.Text(),
		Weight: store.All, Limit: store.All, TTL: checkLimit, // it does not expire on a slow server
	}
	waits := claim
	waits.Owner, waits.Lease, waits.Wait = rand.Text(), rand.Text(), true
	if _, err := s.Acquire(ctx, claim); err != nil {
		return tried(err)
	}
	if x := s.Extend(ctx, []store.Claim{claim}); x[0].Err != nil {
		return tried(x[0].Err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	woken, watchErr := s.Watch(watching, waits)
	switch _, err := s.Acquire(ctx, waits); {
	case err == nil:
		return tried(errors.New("a held key was granted a second time"))
	case !errors.Is(err, store.ErrBusy):
		return tried(err)
	}
	if err := s.Release(ctx, claim); err != nil {
		return tried(err)
	}
	defer func() { _ = s.Release(context.WithoutCancel(ctx), waits) }()
	if s.quiet {
		return nil
	}
	if watchErr != nil {
		return tried(watchErr)
	}
	timer := time.NewTimer(callLimit)
	defer timer.Stop()
	select {
	case _, ok := <-woken:
		if !ok {
			return tried(errors.New("the connection that listens broke"))
		}
	case <-timer.C:
		return tried(errors.New("no wake-up arrived"))
	case <-ctx.Done():
		return tried(context.Cause(ctx))
	}
	return nil
}

func tried(err error) error { return fmt.Errorf("pgstore: check: %w", err) }
