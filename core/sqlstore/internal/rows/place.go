// Package rows sends the statements of stores to a database behind database/sql.
package rows

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/store"
)

const (
	// connectTimeout limits how long a call waits for a connection. It is less than the
	// time limit of a call, so that the error names the missing connection.
	connectTimeout = 1500 * time.Millisecond
	// abandonTimeout limits how long a call waits for the idle connections that it closes.
	abandonTimeout = 250 * time.Millisecond
	// maxTogether is the maximum number of holds that one statement extends.
	maxTogether = 64
	// maxConnections is the maximum number of connections that a call tries.
	maxConnections = 3
)

// Place stores locks in the database of DB, in the tables of its dialect.
type Place struct {
	table.Place
	DB    *sql.DB
	looks atomic.Bool // each statement checks whether a transaction is open
	kept  atomic.Bool // the database is known not to be in memory
}

// New returns a Place in db.
func New(db *sql.DB, d dialect.Dialect) *Place {
	p := &Place{DB: db}
	p.Place.DB, p.Place.Dialect, p.Place.Together = p, d, maxTogether
	return p
}

// CheckClaim implements store.Checker. It refuses a record whose value is too long for
// the server with store.ErrInvalid, after a Load has read the maximum length.
func (p *Place) CheckClaim(c store.Claim) error {
	if c.Record == nil {
		return nil
	}
	if err := p.Fits(len(c.Record.Value)); err != nil {
		return fmt.Errorf("sqlstore: the answer of %d bytes is too long: %w: %w", len(c.Record.Value), store.ErrInvalid, err)
	}
	return nil
}

// Take implements casstore.Usual. On some databases the token is the insert ID.
func (p *Place) Take(ctx context.Context, c store.Claim, version int64) (token uint64, ok bool, err error) {
	if !p.Dialect.Numbered() {
		return p.Place.Take(ctx, c, version)
	}
	n, err := p.exec(ctx, p.Dialect.Take(c, version), sql.Result.LastInsertId)
	if err != nil {
		return 0, false, err
	}
	return uint64(n), n > 0, nil
}

// Change implements table.DB.
func (p *Place) Change(ctx context.Context, st dialect.Statement) (int64, error) {
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

// Query implements table.DB.
func (p *Place) Query(ctx context.Context, st dialect.Statement, next func(scan table.Scan) error) error {
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
			return errors.New(err.Error()) // the statement was sent, so it is not sent again
		}
		return err
	})
}

// call runs work on a connection, and classifies its error. If a connection is broken,
// call uses another one. If the statement may have been sent before, the repetition has
// no further effect. The outcome is then unknown unless a later try succeeds.
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
			return fmt.Errorf("%w: %s%w", store.ErrUnavailable, advice(err), err)
		}
	}
}

// try runs work on a connection without a transaction, and reports whether work was run.
// It closes the connection if the error shows that its session is over, or that its
// server takes no locks.
func (p *Place) try(ctx context.Context, work func(c *sql.Conn) error) (begun bool, err error) {
	c, err := p.connect(ctx)
	if err != nil {
		return false, err
	}
	defer c.Close()
	begun, err = p.use(ctx, c, work)
	switch classOf(err) {
	case ended, closed:
		shut(c)
	case away:
		shut(c)
		p.abandon(ctx)
	}
	return begun, err
}

// shut closes a connection, which its pool drops.
func shut(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
}

// abandon closes the idle connections of the pool. They may lead to a server that has
// become a replica. Connections in use stay open, until a server has refused them too.
func (p *Place) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, abandonTimeout)
	defer cancel()
	for n := p.DB.Stats().Idle; n > 0; n-- {
		c, err := p.DB.Conn(ctx) // an idle one, unless another call was faster
		if err != nil {
			return
		}
		defer c.Close()
		defer shut(c)
	}
}

// use is try on the connection c.
func (p *Place) use(ctx context.Context, c *sql.Conn, work func(c *sql.Conn) error) (begun bool, err error) {
	if err := p.idle(ctx, c); err != nil {
		return false, err
	}
	if !p.kept.Load() {
		if _, err := p.file(ctx, c); err != nil {
			return false, err
		}
		p.kept.Store(true)
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
