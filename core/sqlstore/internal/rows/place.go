// Package rows sends the statements of stores to a database behind database/sql.
package rows

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/calls"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

const (
	// connectTimeout limits how long a call waits for a connection. It is less than the
	// time limit of a call, so that the error names the missing connection.
	connectTimeout = 1500 * time.Millisecond
	// silenceLimit limits how long an idle connection may take to answer a ping.
	silenceLimit = connectTimeout / 3
	// takeTime is enough for taking all idle connections from the pool.
	takeTime = silenceLimit / 10
	// silenceMin is the minimum wait for an answer after which a connection counts as
	// silent. A statement may wait for a locked row for a second.
	silenceMin = 1200 * time.Millisecond
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

	quiet bool // the driver does not ping an idle connection that leaves the pool

	silent    atomic.Bool // a connection did not answer, so the next call pings the idle ones
	mu        sync.Mutex
	abandoned atomic.Int64  // the number of visits that close the connections
	visited   chan struct{} // closed when a visit has finished; nil without one
}

// New returns a Place in db.
func New(db *sql.DB, d dialect.Dialect) *Place {
	p := &Place{DB: db, quiet: db != nil && isQuiet(db.Driver())}
	p.Place.DB, p.Place.Dialect, p.Place.Together = p, d, maxTogether
	return p
}

// CheckClaim implements store.Checker. It refuses a record with store.ErrInvalid if the
// value is too long for the server. The maximum length is known after a Load.
func (p *Place) CheckClaim(c store.Claim) error {
	if c.Record == nil {
		return nil
	}
	if err := p.Fits(len(c.Record.Value)); err != nil {
		return fmt.Errorf("sqlstore: the answer of %d bytes is too long: %w: %w", len(c.Record.Value), store.ErrInvalid, err)
	}
	return nil
}

// Load implements casstore.Place. If row-level security hides the version of the tables,
// the error names the remedy.
func (p *Place) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	e, err := p.Place.Load(ctx, key, w)
	if errors.Is(err, table.ErrHidden) {
		if remedy := p.Hidden(ctx); remedy != "" {
			err = fmt.Errorf("%w: %s", store.ErrUnavailable, remedy)
		}
	}
	return e, err
}

// probing is a key that no lock has.
const probing = "{probe}"

// Probe implements casstore.Prober by a read of the newest row. A proxy may send other
// reads to a replica, while the server that writes is up.
func (p *Place) Probe(ctx context.Context) error {
	_, err := p.Load(ctx, probing, casstore.Want{Current: true})
	if errors.Is(err, casstore.ErrConflict) {
		return nil // the server has answered
	}
	return err
}

// Hidden returns the remedy if row-level security hides the tables from the user, and
// otherwise "".
func (p *Place) Hidden(ctx context.Context) (remedy string) {
	if st := p.Dialect.Hidden("locks", "version"); st.Text != "" {
		_ = table.One(ctx, p, st, &remedy)
	}
	return remedy
}

// Outdated returns the fault of a server that is too old, with its remedy. It returns ""
// if the server does not report a version.
func (p *Place) Outdated(ctx context.Context) string {
	var version string
	if err := table.One(ctx, p, p.Dialect.Server(), &version); err != nil {
		return ""
	}
	return p.Dialect.Outdated(version)
}

// Take implements casstore.Usual. On some databases the token is the insert ID.
func (p *Place) Take(ctx context.Context, c store.Claim, version int64) (token uint64, ok bool, err error) {
	if !p.Dialect.Numbered() {
		return p.Place.Take(ctx, c, version)
	}
	n, _, err := p.exec(ctx, p.Dialect.Take(c, version), sql.Result.LastInsertId)
	if err != nil {
		return 0, false, err
	}
	return uint64(n), n > 0, nil
}

// Give implements casstore.Usual. If an earlier try may have released the hold, and the
// last try finds no hold, the outcome is unknown.
func (p *Place) Give(ctx context.Context, c store.Claim, version int64) (bool, error) {
	n, again, err := p.exec(ctx, p.Dialect.Give(c, version), sql.Result.RowsAffected)
	if err == nil && n == 0 && again {
		err = errors.New("the connection broke, perhaps behind the release, and the next try found no hold")
	}
	return n == 1, err
}

// Change implements table.DB.
func (p *Place) Change(ctx context.Context, st dialect.Statement) (int64, error) {
	n, _, err := p.exec(ctx, st, sql.Result.RowsAffected)
	if errors.Is(err, errPresent) {
		return 0, nil
	}
	return n, err
}

// exec sends a statement. again reports whether an earlier try may have been sent, too.
func (p *Place) exec(ctx context.Context, st dialect.Statement, answer func(sql.Result) (int64, error)) (n int64, again bool, err error) {
	tries := 0
	err = p.call(ctx, func(c *sql.Conn) error {
		tries++
		r, err := c.ExecContext(ctx, st.Text, st.Args...)
		if err != nil {
			return err
		}
		n, err = answer(r)
		return err
	})
	return n, tries > 1 && !isCareful(p.DB.Driver()), err
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
// call uses another connection. Sending a statement again has no further effect. If a
// statement may have been sent, the outcome is unknown unless a later try succeeds.
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
			if try == maxConnections-1 {
				p.silent.Store(true) // the last try needs a pool without broken connections
			}
		case sent:
			return errors.New("the connection broke, perhaps behind the statement: " + err.Error())
		case begun && !bad:
			return classify(err)
		default:
			return fmt.Errorf("%w: %s%w", store.ErrUnavailable, advice(err), err)
		}
	}
}

// try runs work on a connection without a transaction, and reports whether work was
// run.
func (p *Place) try(ctx context.Context, work func(c *sql.Conn) error) (begun bool, err error) {
	if p.silent.Load() {
		select {
		case <-p.renew():
		case <-ctx.Done():
		}
	}
	abandoned := p.abandoned.Load()
	c, err := p.connect(ctx)
	if err != nil {
		return false, err
	}
	defer p.putBack(c, abandoned)
	silence := time.AfterFunc(silenceMin, func() { p.silent.Store(true) })
	defer silence.Stop()
	begun, err = p.use(ctx, c, work)
	switch classOf(err) {
	case ended, closed:
		shut(c)
	case away:
		shut(c)
		p.abandon(ctx, abandoned)
	}
	return begun, err
}

// shut closes a connection, which its pool drops.
func shut(c *sql.Conn) {
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
}

// abandon closes the idle connections of the pool, because their server may have become
// a replica. A connection that a call of this Place uses closes after the call.
// If another caller has begun the same since p.abandoned had the value since, abandon
// leaves it to that caller.
func (p *Place) abandon(ctx context.Context, since int64) {
	p.mu.Lock()
	for p.visited != nil { // until then it occupies the idle connections
		visited := p.visited
		p.mu.Unlock()
		select {
		case <-visited:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
	}
	if p.abandoned.Load() > since {
		p.mu.Unlock()
		return
	}
	p.abandoned.Add(1)
	visited := p.visit(func(_ context.Context, c *sql.Conn) { shut(c) })
	p.mu.Unlock()
	<-visited
}

// renew closes the idle connections of the pool that do not answer a ping, and then the
// returned channel. If no connection was silent, it closes only the channel. A load
// balancer or a firewall may have forgotten a silent connection. Without renew each
// silent connection would make a call fail.
func (p *Place) renew() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.visited != nil {
		return p.visited
	}
	if !p.silent.Load() {
		renewed := make(chan struct{})
		close(renewed)
		return renewed
	}
	return p.visit(func(ctx context.Context, c *sql.Conn) {
		if c.PingContext(ctx) != nil {
			shut(c)
		}
	})
}

// visit runs do on the idle connections, and then closes the returned channel. p.mu is
// locked, and p.visited is nil.
func (p *Place) visit(do func(ctx context.Context, c *sql.Conn)) <-chan struct{} {
	visited := make(chan struct{})
	p.visited = visited
	go func() {
		defer close(visited)
		p.eachIdle(do)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.silent.Store(false)
		p.visited = nil
	}()
	return visited
}

// eachIdle runs do on all idle connections of the pool at once, and waits for at most
// silenceLimit. Some drivers ping a connection when it leaves the pool, and close it if
// it does not answer. A goroutine whose driver ignores ctx is left running.
func (p *Place) eachIdle(do func(ctx context.Context, c *sql.Conn)) {
	ctx, cancel := context.WithTimeout(context.Background(), silenceLimit)
	defer cancel()
	abandoned, running := p.abandoned.Load(), p.DB.Stats().Idle
	asked := make(chan *sql.Conn, running)
	for range running {
		go func() {
			var c *sql.Conn
			defer func() {
				if recover() != nil { // a hook of the driver; package sql has locked c for ever
					c = nil
				}
				asked <- c
			}()
			var err error
			// The connection was idle, unless another call was faster.
			if c, err = p.DB.Conn(ctx); err == nil {
				do(ctx, c)
			}
		}()
	}
	var all []*sql.Conn // put back only at the end, so that no connection is taken twice
	for ; running > 0 && ctx.Err() == nil; running-- {
		select {
		case c := <-asked:
			all = append(all, c)
		case <-ctx.Done():
			running++ // this goroutine has not returned
		}
	}
	if running > 0 {
		go func() {
			for range running {
				p.putBack(<-asked, abandoned)
			}
		}()
	}
	for _, c := range all {
		p.putBack(c, abandoned)
	}
}

// putBack returns c to the pool. If p.abandoned has grown beyond abandoned, it closes c.
func (p *Place) putBack(c *sql.Conn, abandoned int64) {
	if c == nil {
		return
	}
	if p.abandoned.Load() > abandoned {
		shut(c)
	}
	_ = c.Close()
}

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

// connect takes a connection from the pool. A driver may ping an idle connection first,
// without a time limit. So after silenceLimit, connect also calls the method another,
// and uses the connection that arrives first. The first request continues unless the
// pool is full, because it may be a slow dial. A caller that began again would lose the
// time of the dial.
func (p *Place) connect(ctx context.Context) (*sql.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errNoConnection)
	defer cancel()
	var c *sql.Conn
	var err error
	if p.quiet || p.DB.Stats().Idle == 0 {
		c, err = p.DB.Conn(ctx)
	} else {
		abandoned := p.abandoned.Load()
		c, err = calls.Either(ctx, silenceLimit, p.DB.Conn, p.another, func(c *sql.Conn) { p.putBack(c, abandoned) })
	}
	if err == nil || context.Cause(ctx) != errNoConnection {
		return c, err
	}
	if s := p.DB.Stats(); s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		return nil, fmt.Errorf("all %d connections of the pool are in use: give the locks a *sql.DB of their own", s.MaxOpenConnections)
	}
	return nil, fmt.Errorf("%w: %w", errNoConnection, err)
}

// another takes a connection from the pool, without waiting for the ping of a silent
// connection. It first pings all idle connections, so that the pool dials. If the pool
// is full, another also cancels the first request by stop. Otherwise the connection
// that the first request pings would leave no room. If the caller leaves, the dial
// continues, and the next call finds the connection in the pool.
func (p *Place) another(ctx context.Context, stop func()) (*sql.Conn, error) {
	p.silent.Store(true)
	select {
	case <-p.renew():
	case <-time.After(takeTime):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s := p.DB.Stats(); s.MaxOpenConnections > 0 && s.OpenConnections >= s.MaxOpenConnections {
		stop()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout-silenceLimit)
	defer cancel()
	return p.DB.Conn(ctx)
}

var errNoConnection = fmt.Errorf("no connection within %s", words.Duration(connectTimeout))
