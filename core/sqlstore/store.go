package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/sqlstore/internal/rows"
	"github.com/lockkit/lockkit/core/store"
)

// Dialect selects a kind of database: MySQL, PostgreSQL or SQLite.
type Dialect struct{ dialect.Dialect }

// The dialects of this package. MySQL is also the dialect of MariaDB.
var (
	MySQL      = Dialect{dialect.MySQL{}}
	PostgreSQL = Dialect{dialect.PostgreSQL{}}
	SQLite     = Dialect{dialect.SQLite{}}
)

// Store stores locks in a SQL database. It implements store.Store for every kind of
// claim, and store.Checker, store.Prompt, store.Inspector and store.Cards. Its Watch
// fails with store.ErrUnsupported, so waiters of other processes try again after a
// pause.
//
// A Store is safe for concurrent use. A call returns soon after its ctx is done, and at
// the latest after two seconds. Check and Cards can take longer.
type Store struct {
	*casstore.Store
	place *rows.Place
	turns chan struct{} // contains an element for each release in flight, if the pool has no limit
}

// New returns a Store in the tables that Migrate creates in the database of db. New
// sends nothing. The caller closes the Store before db.
//
// The pool of db should not be the pool of the caller's transactions. While the
// transactions have all connections of a shared pool, no lock can be extended. New
// fails with store.ErrInvalid if db is nil, or if d is the zero Dialect.
func New(db *sql.DB, d Dialect) (*Store, error) {
	p, err := placeOf("new", db, d)
	if err != nil {
		return nil, err
	}
	s, err := casstore.New(p, casstore.WithName("sqlstore"))
	if err != nil {
		return nil, err
	}
	return &Store{s, p, make(chan struct{}, maxReleases)}, nil
}

// maxReleases is the maximum number of releases in flight if the pool has no limit. A
// lease releases all its keys at once, so without this maximum it would open a
// connection for each key. By default a server accepts 100 or 151 connections. With
// hundreds of connections, the writers of a SQLite file wait for each other for
// seconds.
const maxReleases = 32

var errNoTurn = fmt.Errorf("%d other releases are in flight: set db.SetMaxOpenConns for more at once", maxReleases)

// Release implements store.Store. If the pool has no limit, at most 32 releases are in
// flight at once, and others wait. A release that waits for two seconds changes nothing
// and fails with store.ErrUnavailable.
func (s *Store) Release(ctx context.Context, c store.Claim) error {
	if s.place.DB.Stats().MaxOpenConnections > 0 {
		return s.Store.Release(ctx, c)
	}
	end := time.Now().Add(s.Limit())
	waiting, stop := context.WithDeadlineCause(ctx, end, errNoTurn)
	defer stop()
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-waiting.Done():
		return s.Store.Release(waiting, c) // sends nothing, and its error has the cause
	}
	ctx, cancel := context.WithDeadlineCause(ctx, end, errNoAnswer)
	defer cancel()
	return s.Store.Release(ctx, c)
}

func placeOf(op string, db *sql.DB, d Dialect) (*rows.Place, error) {
	switch {
	case db == nil:
		return nil, fmt.Errorf("sqlstore: %s: db is nil: %w", op, store.ErrInvalid)
	case d.Dialect == nil:
		return nil, fmt.Errorf("sqlstore: %s: dialect is missing: %w", op, store.ErrInvalid)
	}
	return rows.New(db, d.Dialect), nil
}
