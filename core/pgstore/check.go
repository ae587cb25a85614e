package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/store"
)

// checkLimit is how long a Check takes at the most.
const checkLimit = 5 * callLimit

// Check asks the server whether it is fit to keep locks, and tries out what the
// Store does on a key of its own that is free again within seconds. It returns
// nil, or one error that lists what is unfit and what to do about it:
//
//   - the schema is missing or older than this package: Migrate makes it;
//   - the server is a standby or read-only, or is older than PostgreSQL 14;
//   - a crash would forget locks: fsync is off, or their table is not logged;
//   - the server's clock is behind the tokens that it has given;
//   - the user lacks rights: the error has each GRANT that is missing;
//   - row-level security hides a table from the user: the error has the ALTER TABLE for it;
//   - wake-ups do not arrive, for a Store that relies on them.
//
// The error matches store.ErrUnavailable if the server could not be asked.
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

// inspect returns what speaks against the server.
func (s *Store) inspect(ctx context.Context) ([]string, error) {
	conn, err := s.connection(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: no connection: %w", store.ErrUnavailable, err)
	}
	defer conn.Release()
	pg := conn.Conn().PgConn()
	if err := supported(pg); err != nil {
		return []string{err.Error()}, nil
	}
	// A standby refuses all else where transactions are SERIALIZABLE by default.
	rows, err := results(ctx, pg, "BEGIN ISOLATION LEVEL READ COMMITTED;SELECT pg_catalog.pg_is_in_recovery()"+commit, 3)
	if err != nil {
		return nil, err
	}
	if string(rows[0][0]) == "t" {
		return []string{"the server is a standby: connect to the primary (target_session_attrs=read-write)"}, nil
	}
	rows, err = results(ctx, pg, rights, 1)
	if err != nil {
		return nil, err
	}
	if lacks := string(rows[0][0]); lacks != "" {
		return []string{"the user lacks rights: " + lacks}, nil
	}
	secured, err := hidden(ctx, pg, "keys", "floor", "version")
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
	if v < version {
		return []string{fmt.Sprintf("the schema lockkit has version %d, %d is needed: call pgstore.Migrate", v, version)}, nil
	}
	rows, err = results(ctx, pg, `SELECT current_setting('default_transaction_read_only') = 'on', current_setting('fsync') = 'off',
		EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = 'lockkit' AND c.relkind = 'r' AND c.relpersistence <> 'p')`, 1)
	if err != nil {
		return nil, err
	}
	var faults []string
	for i, advice := range []string{
		"transactions are read-only by default: set default_transaction_read_only = off for this user",
		"fsync is off, a crash can forget every lock: set fsync = on",
		"a table of the schema lockkit is not logged, a crash forgets every lock: ALTER TABLE … SET LOGGED",
	} {
		if string(rows[0][i]) == "t" {
			faults = append(faults, advice)
		}
	}
	if len(faults) > 0 {
		return faults, nil
	}
	rows, err = results(ctx, pg, begin+"SET LOCAL search_path = "+systemOnly+
		";SELECT (token - lockkit.micros(clock_timestamp())) / 1000000 FROM lockkit.floor"+commit, 4)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return []string{"the table lockkit.floor is empty, or a policy hides its row from the user: call pgstore.Migrate, or change the policy"}, nil
	}
	if ahead, ok := number(rows[0][0]); ok && ahead > 60 {
		faults = append(faults, fmt.Sprintf("the server's clock is %d s behind tokens that it has given: set it", ahead))
	}
	return faults, nil
}

// rights asks for the statements that give the user its missing rights, as one text. It
// reads the catalogs only, which every user may. DELETE and the floor are for the
// sweep, which an acquire calls now and then.
const rights = `SELECT coalesce(pg_catalog.string_agg('GRANT ' || lacks || ' TO ' || pg_catalog.quote_ident(current_user), '; ' ORDER BY place), '')
	FROM (
		SELECT 0 AS place, 'USAGE ON SCHEMA lockkit' AS lacks FROM pg_catalog.pg_namespace n
			WHERE n.nspname = 'lockkit' AND NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
		UNION ALL
		SELECT min(v.place), pg_catalog.string_agg(v.privilege, ', ' ORDER BY v.place) || ' ON lockkit.' || c.relname
			FROM (VALUES (1, 'keys', 'SELECT'), (2, 'keys', 'INSERT'), (3, 'keys', 'UPDATE'), (4, 'keys', 'DELETE'),
				(5, 'floor', 'SELECT'), (6, 'floor', 'UPDATE'), (7, 'version', 'SELECT')) v (place, relation, privilege)
			JOIN pg_catalog.pg_class c ON c.relname = v.relation
			JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'lockkit'
			WHERE NOT pg_catalog.has_table_privilege(c.oid, v.privilege) GROUP BY c.relname
		UNION ALL
		SELECT 8, 'EXECUTE ON ALL FUNCTIONS IN SCHEMA lockkit' WHERE EXISTS (
			SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'lockkit'
				WHERE NOT pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
	) needed`

// hidden returns what to do about those of these tables all rows of which row-level security
// hides from the user: it is on, the user does not bypass it, and no policy lets the user
// read. The result is empty if there are none. hidden reads the catalogs only.
func hidden(ctx context.Context, pg *pgconn.PgConn, tables ...string) (string, error) {
	rows, err := results(ctx, pg, concealed(tables), 1)
	if err != nil {
		return "", err
	}
	return string(rows[0][0]), nil
}

// concealed asks for what hidden returns.
func concealed(tables []string) string {
	return `SELECT coalesce('row-level security hides ' || pg_catalog.string_agg('lockkit.' || c.relname, ', ' ORDER BY c.relname) ||
		' from the user: ' || pg_catalog.string_agg('ALTER TABLE lockkit.' || c.relname || ' DISABLE ROW LEVEL SECURITY', '; ' ORDER BY c.relname) ||
		'; or ALTER ROLE ' || pg_catalog.quote_ident(current_user) || ' BYPASSRLS', '')
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'lockkit'
	WHERE c.relname IN ('` + strings.Join(tables, "','") + `') AND pg_catalog.row_security_active(c.oid) AND NOT EXISTS (
		SELECT FROM pg_catalog.pg_policy p, pg_catalog.unnest(p.polroles) r
			WHERE p.polrelid = c.oid AND p.polpermissive AND p.polcmd IN ('r', '*')
				AND (r = 0 OR pg_catalog.pg_has_role(r, 'USAGE')))`
}

// try does with a key of its own what the Store does with any.
func (s *Store) try(ctx context.Context) error {
	claim := store.Claim{
		Key: "check:" + rand.Text(), Owner: rand.Text(), Lease: rand.Text(),
		Weight: store.All, Limit: store.All, TTL: checkLimit, // a slow server is not to lose it meanwhile
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
