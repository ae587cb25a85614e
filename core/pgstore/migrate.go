package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/internal/brief"
	"github.com/lockkit/lockkit/core/internal/clock"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// systemOnly is the search path of Migrate. An SQL operator in another schema could
// match the types better than the system's operator.
const systemOnly = "pg_catalog, pg_temp"

// files contains move.sql, which moves the data of an older version to the tables of
// this version.
//
//go:embed move.sql
var files embed.FS

// Migrate creates the schema lockkit in the database of pool, or upgrades the schema to
// the version of this package. Migrate changes nothing if the schema has that version.
// Migrate may run in several processes at once, and through a pooler. Package sqlstore
// uses the same tables.
//
// Versions before 7 stored locks with functions in the database. Migrate removes the
// functions and moves the data in one transaction: holds, released leases, tokens,
// answers and cards. Users keep their rights to locks. Users that only put or read
// cards need new rights. Processes of an older version work until that transaction is
// committed. After that their calls fail with store.ErrUnavailable, and their holds
// expire. README.md has the steps.
//
// Before Migrate moves data, it waits for the transactions that use the tables. Each
// wait lasts at most a second, because calls queue behind the locks of Migrate. A
// transaction that has read the tables, such as pg_dump's, delays Migrate until the
// transaction or ctx is done.
//
// If the schema is missing or older, the user of pool needs the right to create a
// schema, and must own the tables that are moved. Other users need the rights in the
// package's documentation.
//
// Migrate fails with store.ErrUnsupported if the server is older than PostgreSQL 14 or
// refuses the schema, or if the schema has a later version. It fails with
// store.ErrUnavailable if the server is down or read-only, if the user lacks a right, or
// if row-level security hides a table from the user. In all these cases nothing has
// changed. If the connection breaks during the COMMIT, the outcome is unknown, and
// Migrate can be called again.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return fmt.Errorf("pgstore: migrate: pool is nil: %w", store.ErrInvalid)
	}
	for {
		err := migrate(ctx, pool)
		if !hasCode(err, "55P03") { // lock_not_available
			return err
		}
		if clock.Sleep(ctx, time.Second) != nil { // lets calls that wait for the tables proceed
			return err
		}
	}
}

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("pgstore: migrate: %w: %w", store.ErrUnavailable, err)
	}
	defer conn.Release()
	pg := conn.Conn().PgConn()
	if err := supported(pg); err != nil {
		return wrap("migrate", fmt.Errorf("%w: %w", err, store.ErrUnsupported))
	}
	v, err := installed(ctx, pg)
	if err == nil && v > dialect.SchemaVersion {
		err = fmt.Errorf("the schema lockkit has version %d, not %d: update this program: %w", v, dialect.SchemaVersion, store.ErrUnsupported)
	}
	if err != nil || v == dialect.SchemaVersion {
		return wrap("migrate", err)
	}
	if secured, err := hidden(ctx, pg, "cards", "floor", "keys", "seen", "version"); err != nil {
		return wrap("migrate", err)
	} else if secured != "" {
		return wrap("migrate", fmt.Errorf("%w: %s", store.ErrUnavailable, secured))
	}
	// A connection that is released during a transaction is closed, and its transaction
	// is rolled back.
	if _, err := results(ctx, pg, begin+dialect.PostgreSQL{}.Lock().Text, 2); err != nil {
		return wrap("migrate", err)
	}
	if _, err := results(ctx, pg, lockOfFormer, 1); err != nil {
		return wrap("migrate", err)
	}
	err = install(ctx, pg)
	switch {
	case err == nil:
	case ofRows(err):
		return wrap("migrate", verdict(err))
	case hasCode(err, codeRights):
		return wrap("migrate", fmt.Errorf("%w: %s: %w", store.ErrUnavailable, creation, brief.Error(err)))
	case refusesSchema(err):
		return wrap("migrate", fmt.Errorf("%w: PostgreSQL %s refuses the schema: %w",
			store.ErrUnsupported, pg.ParameterStatus("server_version"), brief.Error(err)))
	default:
		return wrap("migrate", fmt.Errorf("%w: %w", store.ErrUnavailable, brief.Error(err)))
	}
	_, err = results(ctx, pg, "COMMIT", 1)
	return wrap("migrate", err)
}

// lockOfFormer takes the lock that Migrate of version 6 or earlier takes.
const lockOfFormer = "SELECT pg_catalog.pg_advisory_xact_lock(30521770279397748)"

// oldest is the oldest major version of PostgreSQL on which this package is tested.
const oldest = 14

// supported returns an error if the server reports a version below oldest. It returns
// nil if the version cannot be read.
func supported(pg *pgconn.PgConn) error {
	text := pg.ParameterStatus("server_version")
	major, _, _ := strings.Cut(text, ".")
	if n, err := strconv.Atoi(major); err == nil && n < oldest {
		return fmt.Errorf("the server is PostgreSQL %s (at least %d): upgrade it", text, oldest)
	}
	return nil
}

// refusesSchema reports whether the server refused a statement of the schema because of
// its syntax (class 42) or a missing feature (class 0A).
func refusesSchema(err error) bool {
	var reply *pgconn.PgError
	ok := errors.As(err, &reply)
	return ok && (strings.HasPrefix(reply.Code, "42") || strings.HasPrefix(reply.Code, "0A"))
}

const creation = "the user may not make or change the schema lockkit: GRANT CREATE ON DATABASE for the first time, " +
	"or call Migrate as its owner"

// install creates the tables in the open transaction, unless another process has
// created them. It moves the data of an older version to the new tables.
func install(ctx context.Context, pg *pgconn.PgConn) error {
	v, err := installed(ctx, pg)
	if err != nil || v >= dialect.SchemaVersion {
		return err
	}
	d := dialect.PostgreSQL{}
	texts := append(d.Schema(), d.SetVersion(dialect.SchemaVersion).Text)
	if v > 0 {
		move, err := files.ReadFile("move.sql")
		if err != nil {
			return err
		}
		// The tables of this version are created between the two halves of the file.
		before, after, _ := strings.Cut(string(move), "-- The tables of version 7 are here.\n")
		// With row-level security, hidden rows would be lost.
		settings := "SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = 0; SET LOCAL row_security = off"
		texts = slices.Concat([]string{settings, before}, d.Schema(), []string{after})
	}
	for _, text := range slices.Concat([]string{"SET LOCAL search_path = " + systemOnly}, texts) {
		if _, err := pg.Exec(ctx, text).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}

// installed returns the version of the schema in the database, or 0 if there is no
// schema.
func installed(ctx context.Context, pg *pgconn.PgConn) (v int64, err error) {
	tables, err := value(ctx, pg, "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "+
		"WHERE n.nspname = 'lockkit' AND c.relname = 'version'", 1)
	if err != nil || tables == "0" {
		return 0, err
	}
	text, err := value(ctx, pg, "SELECT coalesce(max(version), 0) FROM lockkit.version", 1)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgstore: %s: %w", op, err)
}
