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
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// systemOnly is the search path of all that Migrate does: what others have put into theirs may
// fit an operator better.
const systemOnly = "pg_catalog, pg_temp"

// move.sql brings the tables of an older version to this one.
//
//go:embed move.sql
var files embed.FS

// Migrate makes the schema lockkit in the database of pool, or brings it to the version of
// this package. It does nothing if that has been done. It may run in several processes at
// once, and through a pooler. The tables are those of package sqlstore too.
//
// Versions before 7 kept locks by functions in the database. Migrate removes these and moves what is
// held and kept, in one transaction: holds, leases that were released, tokens, answers, cards. Users
// keep their rights. Processes of an older version work until then. Each later call of theirs
// fails with store.ErrUnavailable, and what they hold expires. README.md has the steps.
//
// To move them it waits for who uses the tables, for a second at a time, since calls wait behind
// it. So beside a transaction that has read them, as pg_dump's, it takes until that ends, or
// ctx is done.
//
// The user of pool needs the right to create a schema, if there is something to do, and owns
// what is moved. Other users need the rights in the package's documentation.
//
// It fails with store.ErrUnsupported if the server is older than PostgreSQL 14 or refuses
// the schema, or that is of a later version, and with store.ErrUnavailable if the server is
// down or read-only, the user lacks a right, or row-level security hides a table from the
// user. Nothing was changed in any of these cases.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return fmt.Errorf("pgstore: migrate: pool is nil: %w", store.ErrInvalid)
	}
	for {
		err := migrate(ctx, pool)
		if !hasCode(err, "55P03") { // lock_not_available
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second): // for the calls that have waited behind
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
	// A connection that is released in the middle of a transaction is closed, and
	// the transaction with it.
	if _, err := results(ctx, pg, begin+dialect.PostgreSQL{}.Lock().Text, 2); err != nil {
		return wrap("migrate", err)
	}
	if _, err := results(ctx, pg, lockOfFormer, 1); err != nil {
		return wrap("migrate", err)
	}
	err = install(ctx, pg)
	switch {
	case err == nil:
	case hasCode(err, codeRights) && !ofRows(err):
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

// lockOfFormer waits for a Migrate of version 6 or earlier.
const lockOfFormer = "SELECT pg_catalog.pg_advisory_xact_lock(30521770279397748)"

// oldest is the oldest major version of PostgreSQL that runs the schema.
const oldest = 14

// supported returns an error for a server that says that it is older. A server whose
// version cannot be read is tried.
func supported(pg *pgconn.PgConn) error {
	text := pg.ParameterStatus("server_version")
	major, _, _ := strings.Cut(text, ".")
	if n, err := strconv.Atoi(major); err == nil && n < oldest {
		return fmt.Errorf("the server is PostgreSQL %s, %d or later is needed: upgrade it", text, oldest)
	}
	return nil
}

// refusesSchema reports whether the server does not take a statement of the schema: it does
// not know its syntax (class 42) or does not support it (0A).
func refusesSchema(err error) bool {
	var reply *pgconn.PgError
	ok := errors.As(err, &reply)
	return ok && (strings.HasPrefix(reply.Code, "42") || strings.HasPrefix(reply.Code, "0A"))
}

const creation = "the user may not make or change the schema lockkit: GRANT CREATE ON DATABASE for the first time, " +
	"or call Migrate as its owner"

// install makes the tables, in a transaction, unless another process has done so. What there
// is of an older version is moved to them.
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
		// The schema is made between the halves.
		before, after, _ := strings.Cut(string(move), "-- The tables of version 7 are here.\n")
		// Row-level security would hide rows, and these would be lost.
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

// installed returns the version of the schema in the database, 0 if there is none.
func installed(ctx context.Context, pg *pgconn.PgConn) (v int64, err error) {
	a, err := results(ctx, pg, "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "+
		"WHERE n.nspname = 'lockkit' AND c.relname = 'version'", 1)
	if err != nil {
		return 0, err
	}
	if string(a.rows[0][0]) == "0" {
		return 0, nil
	}
	if a, err = results(ctx, pg, "SELECT coalesce(max(version), 0) FROM lockkit.version", 1); err != nil {
		return 0, err
	}
	return v, scan(a.rows[0], []any{&v})
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgstore: %s: %w", op, err)
}
