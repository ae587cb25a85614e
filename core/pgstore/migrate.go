package pgstore

import (
	"context"
	"embed"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
)

// version is that of the schema and its functions. A change of a function's
// arguments makes a function beside the old one, so that a program of the last
// version works on while it is replaced.
const version = 1

//go:embed schema.sql sql/*.sql
var files embed.FS

// parts are the files of the schema, in order. Each can be run again.
var parts = []string{"schema.sql", "sql/state.sql", "sql/acquire.sql", "sql/release.sql", "sql/view.sql"}

// migrating is the lock under which Migrate works, for one transaction.
const migrating = 0x6c6f636b6b6974 // "lockkit"

// Migrate makes the schema lockkit in the database of pool, or brings it to the version of
// this package; held locks and kept answers stay. It does nothing if that has
// been done, or if a later version is there, which serves this one too. It may
// run in several processes at once, and through a pooler.
//
// The user of pool needs the right to create a schema, if there is something to do. Other
// users need USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on all of
// its tables. The error matches core.ErrUnavailable if nothing was changed.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return fmt.Errorf("pgstore: migrate: pool is nil: %w", core.ErrInvalid)
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("pgstore: migrate: %w: %w", core.ErrUnavailable, err)
	}
	defer conn.Release()
	if v, err := installed(ctx, conn.Conn()); err != nil || v >= version {
		return wrap("migrate", err)
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return wrap("migrate", verdict(err))
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(migrating)), pgx.QueryExecModeSimpleProtocol); err != nil {
		return wrap("migrate", verdict(err))
	}
	if v, err := installed(ctx, conn.Conn()); err != nil || v >= version {
		return wrap("migrate", err) // somebody else has done it
	}
	for _, name := range parts {
		text, err := files.ReadFile(name)
		if err != nil {
			return wrap("migrate", err)
		}
		if _, err := conn.Conn().PgConn().Exec(ctx, string(text)).ReadAll(); err != nil {
			return wrap("migrate: "+name, fmt.Errorf("%w: %w", core.ErrUnavailable, err))
		}
	}
	const note = "INSERT INTO lockkit.version (version) VALUES (%d) ON CONFLICT (one) DO UPDATE SET version = EXCLUDED.version"
	if _, err := tx.Exec(ctx, fmt.Sprintf(note, version), pgx.QueryExecModeSimpleProtocol); err != nil {
		return wrap("migrate", fmt.Errorf("%w: %w", core.ErrUnavailable, err))
	}
	return wrap("migrate", verdict(tx.Commit(ctx)))
}

// installed returns the version of the schema in the database, 0 if there is none.
func installed(ctx context.Context, conn *pgx.Conn) (int, error) {
	var there bool
	err := conn.QueryRow(ctx, "SELECT to_regclass('lockkit.version') IS NOT NULL", pgx.QueryExecModeSimpleProtocol).Scan(&there)
	if err != nil || !there {
		return 0, verdict(err)
	}
	var v int
	err = conn.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM lockkit.version", pgx.QueryExecModeSimpleProtocol).Scan(&v)
	return v, verdict(err)
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgstore: %s: %w", op, err)
}
