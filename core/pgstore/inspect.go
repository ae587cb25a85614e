package pgstore

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/store"
)

// Look implements store.Inspector in one round trip. For a free key a second round trip
// finds out whether row-level security hides the table. Look locks no row, and does not
// read the value of a record.
func (s *Store) Look(ctx context.Context, key string) (store.State, error) {
	state, err := s.Store.Look(ctx, key)
	if err == nil && len(state.Holds) == 0 && len(state.Waiters) == 0 && state.Run == nil {
		err = s.visible(ctx, "look")
	}
	return state, needs(looking, err)
}

// List implements store.Inspector in one round trip per page. An empty page takes one
// more round trip. The keys are in the order of their bytes. next is "" if no more keys
// follow, and otherwise the last key that List has read, in hex. The next page begins
// after that key.
func (s *Store) List(ctx context.Context, after string, most int) (page []store.State, next string, err error) {
	page, next, err = s.Store.List(ctx, after, most)
	if err == nil && len(page) == 0 {
		err = s.visible(ctx, "list")
	}
	return page, next, needs(looking, err)
}

// Revoke implements store.Inspector in two round trips, or more if the row changes in
// between.
func (s *Store) Revoke(ctx context.Context, key, hold string, keep time.Duration) error {
	return needs(revoking, s.Store.Revoke(ctx, key, hold, keep))
}

// Put implements store.Cards in two round trips, or more if the row changes in between.
func (s *Store) Put(ctx context.Context, c store.Card, ttl time.Duration) error {
	return needs(carding, s.Store.Put(ctx, c, ttl))
}

// Cards implements store.Cards in one round trip for each process, and one for each page
// of processes. If there are no cards, it takes one more.
func (s *Store) Cards(ctx context.Context) ([]store.Card, error) {
	cards, err := s.Store.Cards(ctx)
	if err == nil && len(cards) == 0 {
		err = s.visible(ctx, "cards")
	}
	return cards, needs(looking, err)
}

// visible returns an error if row-level security hides the tables, which then seem to be
// empty.
func (s *Store) visible(ctx context.Context, op string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, errNoAnswer)
	defer cancel()
	conn, err := s.place.connection(ctx)
	if err != nil {
		return fmt.Errorf("pgstore: %s: %w: no connection: %w", op, store.ErrUnavailable, err)
	}
	defer conn.Release()
	secured, err := hidden(ctx, conn.Conn().PgConn(), "locks", "version")
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("pgstore: %s: %w", op, err)
	case err != nil:
		return fmt.Errorf("pgstore: %s: %w: %w", op, store.ErrUnavailable, err)
	case secured != "":
		return fmt.Errorf("pgstore: %s: %w: %s", op, store.ErrUnavailable, secured)
	}
	return nil
}

// needs adds the missing GRANT to an error about a right. For a missing right to a
// table, needs adds the parameter grant. For a missing right to the schema, needs adds
// USAGE on the schema. In any language, the server's message contains the schema's name
// only if the right to the schema is missing.
func needs(grant string, err error) error {
	var reply *pgconn.PgError
	ok := errors.As(err, &reply)
	if !ok || reply.Code != codeRights || ofRows(err) {
		return err
	}
	if ofSchema.MatchString(reply.Message) {
		grant = "USAGE ON SCHEMA lockkit"
	}
	return fmt.Errorf("GRANT %s is missing: %w", grant, err)
}

var ofSchema = regexp.MustCompile(`\blockkit\b`)

// The rights of operators, in addition to USAGE on the schema.
const (
	looking  = "SELECT ON lockkit.locks, lockkit.version"
	revoking = "SELECT, UPDATE ON lockkit.locks, GRANT SELECT ON lockkit.version"
	carding  = "SELECT, INSERT, UPDATE ON lockkit.locks, GRANT SELECT ON lockkit.version"
)
