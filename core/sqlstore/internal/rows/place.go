// Package rows keeps the rows of locks in a database behind database/sql: the place of
// package casstore.
package rows

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/store"
)

const (
	// connectTimeout is how long a call waits for a connection. It is less than a call may
	// take, so that the error says what is missing.
	connectTimeout = 1500 * time.Millisecond
	// maxTogether is how many holds one statement extends.
	maxTogether = 64
	// maxConnections is how many connections a call tries that turn out to be broken.
	maxConnections = 3
)

// Place implements casstore.Place, Usual, Lister and Sweeper on DB, in the tables that Dialect
// makes. Its methods take as long as their ctx lasts.
type Place struct {
	DB      *sql.DB
	Dialect dialect.Dialect
	id      atomic.Pointer[string] // of the tables, once it was read
	looks   atomic.Bool            // the statements find out by themselves whether a transaction is open
}

var (
	_ casstore.Usual   = (*Place)(nil)
	_ casstore.Lister  = (*Place)(nil)
	_ casstore.Sweeper = (*Place)(nil)
)

// Load implements casstore.Place.
func (p *Place) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	items, err := p.read(ctx, p.Dialect.Load(key, w))
	switch {
	case err != nil:
		return casstore.Entry{}, err
	case len(items) != 1:
		return casstore.Entry{}, fmt.Errorf("%w: the table of the version is empty, call Migrate", store.ErrUnavailable)
	}
	return items[0].Entry, nil
}

// List implements casstore.Lister.
func (p *Place) List(ctx context.Context, after string, most int) ([]casstore.Item, error) {
	return p.read(ctx, p.Dialect.List(after, most))
}

// Dead implements casstore.Sweeper.
func (p *Place) Dead(ctx context.Context, most int) ([]casstore.Item, error) {
	return p.read(ctx, p.Dialect.Dead(most))
}

// read returns the rows that a statement reads.
func (p *Place) read(ctx context.Context, st dialect.Statement) (items []casstore.Item, err error) {
	err = p.query(ctx, st, func(scan func(to ...any) error) error {
		var r dialect.Row
		if err := scan(r.Fields()...); err != nil {
			return err
		}
		switch {
		case !r.Alone:
			return errOpen
		case !r.Writes:
			return errReplica
		case r.Schema < dialect.SchemaVersion:
			return errOld
		case r.Schema > dialect.SchemaVersion:
			return errNew
		}
		items = append(items, r.Item())
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrUnavailable) { // a read changes nothing in any case
		err = fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return items, err
}

var (
	errReplica = errors.New("the server that answers does not write, as a replica: send all statements to the primary")

	errOld = errors.New("the tables are of an older version: call Migrate")
	errNew = errors.New("the tables are of a newer version: update this program")
)

// Save implements casstore.Place.
func (p *Place) Save(ctx context.Context, key string, old, e casstore.Entry) (bool, error) {
	n, err := p.change(ctx, p.Dialect.Save(key, old, e))
	return n == 1, err
}

// Take implements casstore.Usual.
func (p *Place) Take(ctx context.Context, c store.Claim, version int64) (token uint64, ok bool, err error) {
	var n int64
	st := p.Dialect.Take(c, version)
	if p.Dialect.Numbered() {
		n, err = p.exec(ctx, st, sql.Result.LastInsertId)
	} else {
		err = p.query(ctx, st, func(scan func(to ...any) error) error { return scan(&n) })
	}
	if err != nil { // also after a row: it is granted only with the end of the result
		return 0, false, err
	}
	return uint64(n), n > 0, nil
}

// Give implements casstore.Usual.
func (p *Place) Give(ctx context.Context, c store.Claim, version int64) (bool, error) {
	n, err := p.change(ctx, p.Dialect.Give(c, version))
	return n == 1, err
}

// Delete implements casstore.Sweeper.
func (p *Place) Delete(ctx context.Context, key string, old casstore.Entry) (bool, error) {
	n, err := p.change(ctx, p.Dialect.Delete(key, old.Version))
	return n == 1, err
}

// Raise implements casstore.Sweeper.
func (p *Place) Raise(ctx context.Context, token uint64) error {
	_, err := p.exec(ctx, p.Dialect.Raise(token), sql.Result.RowsAffected)
	return err
}

// Extend implements casstore.Usual, by a statement for each 64 holds of one TTL. One that fails
// leaves the others as they are.
func (p *Place) Extend(ctx context.Context, claims []store.Claim, version int64) ([]bool, error) {
	done, order := make(map[string]bool, len(claims)), slices.Clone(claims)
	// Rows are locked in one order, so that two of these do not wait for each other.
	slices.SortFunc(order, func(a, b store.Claim) int {
		return cmp.Or(cmp.Compare(a.TTL, b.TTL), strings.Compare(a.Key, b.Key))
	})
	var failed error
	for len(order) > 0 {
		n := 1
		for n < min(len(order), maxTogether) && order[n].TTL == order[0].TTL {
			n++
		}
		err := p.extend(ctx, order[:n], version, done)
		if err != nil && (failed == nil || errors.Is(failed, store.ErrUnavailable)) {
			failed = err // one of unknown outcome, if there is one
		}
		order = order[n:]
	}
	answers := make([]bool, len(claims))
	for i, c := range claims {
		answers[i] = done[c.Key]
	}
	return answers, failed
}

// extend extends some holds together. If it has changed fewer rows, those with its version are
// read.
func (p *Place) extend(ctx context.Context, claims []store.Claim, version int64, done map[string]bool) error {
	n, err := p.change(ctx, p.Dialect.Extend(claims, claims[0].TTL, version))
	switch {
	case errors.Is(err, casstore.ErrConflict), err == nil && n == 0:
		return nil
	case err != nil:
		return err
	case n == int64(len(claims)):
		for _, c := range claims {
			done[c.Key] = true
		}
		return nil
	}
	err = p.query(ctx, p.Dialect.Extended(claims, version), func(scan func(to ...any) error) error {
		var name []byte
		err := scan(&name)
		done[string(name)] = true
		return err
	})
	if err != nil {
		return fmt.Errorf("%d of %d were extended: %s", n, len(claims), err.Error()) // it has no class
	}
	return nil
}

// change runs a statement and returns how many rows it has changed.
func (p *Place) change(ctx context.Context, st dialect.Statement) (int64, error) {
	n, err := p.exec(ctx, st, sql.Result.RowsAffected)
	if errors.Is(err, errPresent) {
		return 0, nil
	}
	return n, err
}

func (p *Place) exec(ctx context.Context, st dialect.Statement, answer func(sql.Result) (int64, error)) (n int64, err error) {
	err = p.call(ctx, func(c *sql.Conn) error {
		r, err := c.ExecContext(ctx, st.Text, st.Args...)
		if err != nil {
			return err
		}
		n, err = answer(r)
		return err
	})
	return n, err
}

// query has each row that a statement returns read by next. It fails if the statement does so
// after a row: until the end of the result the transaction may still fail.
func (p *Place) query(ctx context.Context, st dialect.Statement, next func(scan func(to ...any) error) error) error {
	return p.call(ctx, func(c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, st.Text, st.Args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		begun := false
		for rows.Next() {
			begun = true
			if err := next(rows.Scan); err != nil {
				return err
			}
		}
		if err = rows.Err(); err == nil {
			err = rows.Close()
		}
		if begun && errors.Is(err, driver.ErrBadConn) {
			return errors.New(err.Error()) // it was sent, so it is not sent again
		}
		return err
	})
}

// One reads the one row that a statement returns.
func (p *Place) One(ctx context.Context, st dialect.Statement, to ...any) error {
	n := 0
	err := p.query(ctx, st, func(scan func(to ...any) error) error { n++; return scan(to...) })
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows", n)
	}
	return err
}

// call runs work on a connection, and classifies its error. A connection that turns out to be
// broken is replaced. If the statement may have been sent by then, it is sent twice, which
// changes nothing, and the outcome is unknown unless it is answered.
func (p *Place) call(ctx context.Context, work func(c *sql.Conn) error) error {
	sent := false
	for try := 1; ; try++ {
		begun, err := p.try(ctx, work)
		bad := errors.Is(err, driver.ErrBadConn)
		sent = sent || bad && begun && !isCareful(p.DB.Driver())
		switch {
		case err == nil:
			return nil
		case bad && try < maxConnections:
		case sent:
			return errors.New("the connection broke, perhaps behind the statement: " + err.Error())
		case begun && !bad:
			return classify(err)
		default:
			return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
		}
	}
}

// try runs work on a connection without a transaction, and reports whether it came to that.
func (p *Place) try(ctx context.Context, work func(c *sql.Conn) error) (begun bool, err error) {
	c, err := p.connect(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	if err := p.idle(ctx, c); err != nil {
		return false, err
	}
	return true, work(c)
}

func (p *Place) connect(ctx context.Context) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errNoConnection)
	defer cancel()
	c, err := p.DB.Conn(ctx)
	if err == nil || context.Cause(ctx) != errNoConnection {
		return c, err
	}
	if s := p.DB.Stats(); s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return nil, fmt.Errorf("all %d connections of the pool are in use: give the locks a *sql.DB of their own", s.MaxOpenConnections)
	}
	return nil, fmt.Errorf("%w: %w", errNoConnection, err)
}

var errNoConnection = fmt.Errorf("no connection within %v", connectTimeout)
