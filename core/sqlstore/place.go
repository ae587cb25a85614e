package sqlstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkit/lockkit/core/internal/calls"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

// Dialect is a kind of database.
type Dialect struct {
	dialect.Dialect
	class func(error) class
}

// The dialects. MySQL is that of MariaDB too.
var (
	MySQL      = Dialect{dialect.MySQL{}, classOfMySQL}
	PostgreSQL = Dialect{dialect.PostgreSQL{}, classOfPostgreSQL}
	SQLite     = Dialect{dialect.SQLite{}, classOfSQLite}
)

// Row is what the database keeps of one key.
type Row = dialect.Row

// callLimit is how long a statement may take.
const callLimit = 2 * time.Second

// mostTogether is how many holds one statement extends.
const mostTogether = 64

// Place keeps rows in a database. It is safe for concurrent use.
//
// A method returns an error that matches store.ErrUnavailable if nothing was changed. After
// any other error it is not known whether the statement took effect.
type Place struct {
	db *sql.DB
	d  Dialect
}

// NewPlace returns a Place in the tables that Migrate makes in db.
func NewPlace(db *sql.DB, d Dialect) (*Place, error) {
	if err := check("new", db, d); err != nil {
		return nil, err
	}
	return &Place{db, d}, nil
}

func check(op string, db *sql.DB, d Dialect) error {
	switch {
	case db == nil:
		return fmt.Errorf("sqlstore: %s: db is nil: %w", op, store.ErrInvalid)
	case d.Dialect == nil:
		return fmt.Errorf("sqlstore: %s: no dialect is given: %w", op, store.ErrInvalid)
	}
	return nil
}

// Load returns the row of key, without its answer unless it is wanted.
func (p *Place) Load(ctx context.Context, key string, answer bool) (Row, error) {
	r, err := call(ctx, p, func(ctx context.Context) (r Row, err error) {
		return r, one(ctx, p.db, p.d.Load(key, answer), r.Fields()...)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Row{}, fmt.Errorf("sqlstore: load: the floor of the tokens is missing, call Migrate: %w", store.ErrUnavailable)
	case err != nil:
		return Row{}, fmt.Errorf("sqlstore: load: %w", err)
	case !r.Alone:
		return Row{}, fmt.Errorf("sqlstore: load: the session has autocommit off, or an open transaction: set autocommit=1 in the DSN: %w", store.ErrUnavailable)
	}
	return r, nil
}

// Save writes r over the row that Load has returned as old, and reports whether that was
// still there.
func (p *Place) Save(ctx context.Context, key string, old, r Row) (bool, error) {
	if old.Version == 0 {
		r.Version = fresh()
	}
	n, err := p.change(ctx, p.d.Save(key, old, r))
	if errors.Is(err, errThere) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("sqlstore: save: %w", err)
	}
	return n == 1, nil
}

// Take grants the usual claim c if its key is free. If it reports false, the key may also be
// held by c itself.
func (p *Place) Take(ctx context.Context, c store.Claim) (token uint64, ok bool, err error) {
	st := p.d.Take(c, fresh())
	n, err := call(ctx, p, func(ctx context.Context) (n int64, err error) {
		if p.d.Numbered() {
			r, err := p.db.ExecContext(ctx, st.Text, st.Args...)
			if err != nil {
				return 0, err
			}
			return r.LastInsertId()
		}
		if err = one(ctx, p.db, st, &n); errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return n, err
	})
	if err != nil {
		return 0, false, fmt.Errorf("sqlstore: take: %w", err)
	}
	return uint64(n), n > 0, nil
}

// Give releases the usual hold of c, and reports whether there was one.
func (p *Place) Give(ctx context.Context, c store.Claim) (bool, error) {
	n, err := p.change(ctx, p.d.Give(c))
	if err != nil {
		return false, fmt.Errorf("sqlstore: give: %w", err)
	}
	return n == 1, nil
}

// Extend extends the usual holds of claims, and reports for each whether that is certain. Where
// it is not, the hold is asked for alone by Load.
func (p *Place) Extend(ctx context.Context, claims []store.Claim) ([]bool, error) {
	done, order := make([]bool, len(claims)), make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	// Rows are locked in one order, so that two of these do not wait for each other.
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(claims[a].TTL, claims[b].TTL), strings.Compare(claims[a].Key, claims[b].Key))
	})
	for len(order) > 0 {
		n := 1
		for n < min(len(order), mostTogether) && claims[order[n]].TTL == claims[order[0]].TTL {
			n++
		}
		if err := p.extend(ctx, claims, order[:n], done); err != nil {
			return done, err
		}
		order = order[n:]
	}
	return done, nil
}

// extend extends those claims that some are the numbers of: together, and if one of them was
// not held, each alone.
func (p *Place) extend(ctx context.Context, claims []store.Claim, some []int, done []bool) error {
	together := make([]store.Claim, len(some))
	for i, at := range some {
		together[i] = claims[at]
	}
	n, err := p.change(ctx, p.d.Extend(together, together[0].TTL))
	if err != nil {
		return fmt.Errorf("sqlstore: extend: %w", err)
	}
	if n == int64(len(some)) {
		for _, at := range some {
			done[at] = true
		}
		return nil
	}
	if len(some) == 1 || n == 0 {
		return nil
	}
	for i := range some {
		if err := p.extend(ctx, claims, some[i:i+1], done); err != nil {
			return err
		}
	}
	return nil
}

// change runs a statement and returns how many rows it has changed.
func (p *Place) change(ctx context.Context, st dialect.Statement) (int64, error) {
	return call(ctx, p, func(ctx context.Context) (int64, error) {
		r, err := p.db.ExecContext(ctx, st.Text, st.Args...)
		if err != nil {
			return 0, err
		}
		return r.RowsAffected()
	})
}

// one reads the one row that a statement returns. A row that a statement returns counts after
// the end of the result: until then the transaction may still fail.
func one(ctx context.Context, q interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}, st dialect.Statement, to ...any) error {
	rows, err := q.QueryContext(ctx, st.Text, st.Args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if !rows.Next() {
		return cmp.Or(rows.Err(), sql.ErrNoRows)
	}
	if err := rows.Scan(to...); err != nil {
		return err
	}
	if rows.Next() {
		return errors.New("more than one row")
	}
	return errors.Join(rows.Err(), rows.Close())
}

var errNoAnswer = errors.New("no answer within the time of a call")

// call runs work where its caller can leave it, and classifies its error.
func call[T any](ctx context.Context, p *Place, work func(ctx context.Context) (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, fmt.Errorf("%w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	waiting, cancel := context.WithTimeoutCause(ctx, callLimit, errNoAnswer)
	defer cancel()
	// A driver closes the connection of a statement whose context is done.
	going, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), callLimit, errNoAnswer)
	v, left, err := calls.Detached(waiting, func() (T, error) {
		defer stop()
		return work(going)
	})
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return v, err
	}
	if !left {
		switch p.d.class(err) {
		case unchanged:
			return none, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		case there:
			return none, errThere
		}
	}
	return none, fmt.Errorf("outcome unknown: %w", err)
}

// fresh is a version for a row that is new: no earlier row of the key has had it.
func fresh() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.NativeEndian.Uint64(b[:])>>2) + 1
}
