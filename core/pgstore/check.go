package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core"
)

// checkLimit is how long a Check takes at the most.
const checkLimit = 5 * callLimit

// Check asks the server whether it is fit to keep locks, and tries out what the
// Store does on a key of its own that is free again within seconds. It returns
// nil, or one error that lists what is unfit and what to do about it:
//
//   - the schema is missing or older than this package: Migrate makes it;
//   - the server is a replica or read-only, or is older than PostgreSQL 12;
//   - a crash would forget locks: fsync is off, or their table is not logged;
//   - the server's clock is behind the tokens that it has given;
//   - the user lacks rights that are needed;
//   - wake-ups do not arrive, for a Store that relies on them.
//
// The error matches core.ErrUnavailable if the server could not be asked.
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
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: no connection: %w", core.ErrUnavailable, err)
	}
	defer conn.Release()
	pg := conn.Conn().PgConn()
	v, err := installed(ctx, pg)
	if err != nil && !hasCode(err, "42501") {
		return nil, err
	}
	if err == nil && v < version {
		return []string{fmt.Sprintf("the schema lockkit has version %d, %d is needed: call pgstore.Migrate", v, version)}, nil
	}
	rows, err := results(ctx, pg, `SELECT current_setting('server_version_num')::int < 120000, pg_is_in_recovery(),
		current_setting('default_transaction_read_only') = 'on', current_setting('fsync') = 'off',
		EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = 'lockkit' AND c.relkind = 'r' AND c.relpersistence <> 'p')`, 1)
	if err != nil {
		return nil, err
	}
	var faults []string
	for i, advice := range []string{
		"the server is older than PostgreSQL 12: upgrade it",
		"the server is a replica: connect to the primary (target_session_attrs=read-write)",
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
	// What the sweep needs, which an acquire calls now and then.
	rows, err = results(ctx, pg, "SELECT pg_catalog.has_schema_privilege('lockkit', 'USAGE') AND (SELECT pg_catalog.bool_and("+
		"pg_catalog.has_table_privilege(t, r)) FROM (VALUES ('lockkit.keys', 'DELETE'), ('lockkit.floor', 'UPDATE')) v (t, r))", 1)
	if hasCode(err, "42501") || err == nil && string(rows[0][0]) != "t" {
		return []string{advice}, nil
	}
	if err != nil {
		return nil, err
	}
	rows, err = results(ctx, pg, begin+"SET LOCAL search_path = "+systemOnly+
		";SELECT (token - lockkit.micros(clock_timestamp())) / 1000000 FROM lockkit.floor"+commit, 4)
	if hasCode(err, "42501") {
		return []string{advice}, nil
	}
	if err != nil {
		return nil, err
	}
	if ahead, ok := number(rows[0][0]); ok && ahead > 60 {
		faults = append(faults, fmt.Sprintf("the server's clock is %d s behind tokens that it has given: set it", ahead))
	}
	return faults, nil
}

const advice = "the user needs USAGE on the schema lockkit, SELECT, INSERT, UPDATE and DELETE on all of its tables, " +
	"and EXECUTE on its functions if PUBLIC does not have that"

// try does with a key of its own what the Store does with any.
func (s *Store) try(ctx context.Context) error {
	claim := core.Claim{
		Key: "check:" + rand.Text(), Owner: rand.Text(), Lease: rand.Text(),
		Weight: core.All, Limit: core.All, TTL: checkLimit, // a slow server is not to lose it meanwhile
	}
	waits := claim
	waits.Owner, waits.Lease, waits.Wait = rand.Text(), rand.Text(), true
	if _, err := s.Acquire(ctx, claim); err != nil {
		return tried(err)
	}
	if x := s.Extend(ctx, []core.Claim{claim}); x[0].Err != nil {
		return tried(x[0].Err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	woken, watchErr := s.Watch(watching, waits)
	switch _, err := s.Acquire(ctx, waits); {
	case err == nil:
		return tried(errors.New("a held key was granted a second time"))
	case !errors.Is(err, core.ErrBusy):
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

// tried says what an error of the trial may come from.
func tried(err error) error {
	if hasCode(err, "42501") {
		return fmt.Errorf("pgstore: check: %s: %w", advice, err)
	}
	return fmt.Errorf("pgstore: check: %w", err)
}
