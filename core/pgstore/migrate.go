package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/internal/brief"
	"github.com/lockkit/lockkit/core/store"
)

// version is that of the schema and its functions. A change of a function's
// arguments makes a function beside the old one, so that a program of the last
// version works on while it is replaced.
const version = 6

// systemOnly is the search path of all that is done, see schema.sql.
const systemOnly = "pg_catalog, pg_temp"

//go:embed schema.sql sql/*.sql
var files embed.FS

// parts are the files of the schema, in order. Each can be run again.
var parts = []string{"schema.sql", "sql/state.sql", "sql/acquire.sql", "sql/release.sql", "sql/inspect.sql", "sql/view.sql"}

// migrating is the lock under which Migrate works, for one transaction.
const migrating = 0x6c6f636b6b6974 // "lockkit"

// Migrate makes the schema lockkit in the database of pool, or brings it to the version of
// this package; held locks and kept answers stay. It does nothing if that has
// been done, or if a later version is there, which serves this one too. It may
// run in several processes at once, and through a pooler.
//
// The user of pool needs the right to create a schema, if there is something to do. Other
// users need USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on all of
// its tables.
//
// It fails with store.ErrUnsupported if the server is older than PostgreSQL 14 or refuses
// the schema, and with store.ErrUnavailable if the server is down or read-only, the user
// lacks a right, or row-level security hides a table from the user. Nothing was changed in
// any of these cases.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return fmt.Errorf("pgstore: migrate: pool is nil: %w", store.ErrInvalid)
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("pgstore: migrate: %w: %w", store.ErrUnavailable, err)
	}
	defer conn.Release()
	pg := conn.Conn().PgConn()
	if err := supported(pg); err != nil {
		return wrap("migrate", fmt.Errorf("%w: %w", err, store.ErrUnsupported))
	}
	if v, err := installed(ctx, pg); err != nil || v >= version {
		return wrap("migrate", err)
	}
	if secured, err := hidden(ctx, pg, "cards", "floor", "keys", "seen", "version"); err != nil {
		return wrap("migrate", err)
	} else if secured != "" {
		return wrap("migrate", fmt.Errorf("%w: %s", store.ErrUnavailable, secured))
	}
	// A connection that is released in the middle of a transaction is closed, and
	// the transaction with it.
	if _, err := results(ctx, pg, fmt.Sprintf("%s SELECT pg_advisory_xact_lock(%d)", begin, int64(migrating)), 2); err != nil {
		return wrap("migrate", err)
	}
	v, err := installed(ctx, pg)
	if err == nil && v < version {
		err = install(ctx, pg)
	}
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

// install runs the files, in a transaction.
func install(ctx context.Context, pg *pgconn.PgConn) error {
	if _, err := pg.Exec(ctx, "SET LOCAL search_path = "+systemOnly).ReadAll(); err != nil {
		return err
	}
	for _, name := range parts {
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := pg.Exec(ctx, string(text)).ReadAll(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	const note = "INSERT INTO lockkit.version (version) VALUES (%d) ON CONFLICT (one) DO UPDATE SET version = EXCLUDED.version"
	_, err := pg.Exec(ctx, fmt.Sprintf(note, version)).ReadAll()
	return err
}

// installed returns the version of the schema in the database, 0 if there is none.
func installed(ctx context.Context, pg *pgconn.PgConn) (int64, error) {
	rows, err := results(ctx, pg, "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "+
		"WHERE n.nspname = 'lockkit' AND c.relname = 'version'", 1)
	if err != nil {
		return 0, err
	}
	if n, ok := number(rows[0][0]); ok && n == 0 {
		return 0, nil
	}
	if rows, err = results(ctx, pg, "SELECT coalesce(max(version), 0) FROM lockkit.version", 1); err != nil {
		return 0, err
	}
	v, ok := number(rows[0][0])
	if !ok {
		return 0, errors.New("the version cannot be read")
	}
	return v, nil
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgstore: %s: %w", op, err)
}
