package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
)

// Schema returns the statements that create the tables, for tools that run migrations.
// If the tables exist in this version, the statements change nothing. Tables of an
// older version on PostgreSQL need Migrate of package pgstore instead.
func Schema(d Dialect) string {
	return strings.Join(append(d.Schema(), d.SetVersion(dialect.SchemaVersion).Text), ";\n") + ";\n"
}

// Migrate creates the tables in the database of db. It does nothing if the tables exist
// in this version. It may run in several processes at once.
//
// If the tables do not exist, the user of db needs the right to create them. The
// documentation of the package lists the rights of a Store's user.
//
// Migrate fails with store.ErrUnsupported if the server is too old, if the tables are
// of another version, or if a SQLite database is in memory. Migrate of package pgstore
// moves the tables of an older version on PostgreSQL. If the database cannot be reached
// or refuses a statement, or if row-level security hides the tables, Migrate fails with
// store.ErrUnavailable. If db is nil or d is the zero Dialect, it fails with
// store.ErrInvalid.
func Migrate(ctx context.Context, db *sql.DB, d Dialect) error {
	p, err := placeOf("migrate", db, d)
	if err != nil {
		return err
	}
	if old := p.Outdated(ctx); old != "" {
		return fmt.Errorf("sqlstore: migrate: %s: %w", old, store.ErrUnsupported)
	}
	v, err := installed(ctx, p)
	if errors.Is(err, rows.ErrInMemory) {
		return fmt.Errorf("sqlstore: migrate: %w: %w", store.ErrUnsupported, rows.ErrInMemory)
	}
	if err != nil || v == 0 {
		// An error may only mean that the tables are missing. install changes no tables
		// that exist.
		if remedy := p.Hidden(ctx); remedy != "" {
			return fmt.Errorf("sqlstore: migrate: %s: %w", remedy, store.ErrUnavailable)
		}
		if err := install(ctx, db, d); rows.IsDenied(err) {
			return fmt.Errorf("sqlstore: migrate: the user may not make the tables: %s for the first time, or call Migrate as another user: %w",
				d.Creation(), unavailable(err))
		} else if err != nil {
			return fmt.Errorf("sqlstore: migrate: %w", unavailable(err))
		}
		v, err = installed(ctx, p)
	}
	switch {
	case err != nil:
		return fmt.Errorf("sqlstore: migrate: %w", unavailable(err))
	case v < dialect.SchemaVersion:
		return fmt.Errorf("sqlstore: migrate: the tables are of version %d, not %d: call pgstore.Migrate, which moves them: %w", v, dialect.SchemaVersion, store.ErrUnsupported)
	case v > dialect.SchemaVersion:
		return fmt.Errorf("sqlstore: migrate: the tables are of version %d, not %d: %w", v, dialect.SchemaVersion, store.ErrUnsupported)
	}
	return nil
}

// install creates the tables, in one transaction if the database can create tables in
// transactions.
func install(ctx context.Context, db *sql.DB, d Dialect) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, text := range slices.Concat([]string{d.Lock().Text}, d.Schema(), []string{d.SetVersion(dialect.SchemaVersion).Text}) {
		if text == "" {
			continue
		}
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func installed(ctx context.Context, p *rows.Place) (v int, err error) {
	return v, table.One(ctx, p, p.Dialect.Version(), &v)
}
