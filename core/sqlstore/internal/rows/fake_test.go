package rows

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/lockkit/lockkit/core/internal/dialect"
)

// answer is the answer of a fake database to a statement.
type answer struct {
	err  error // instead of a result; errDial: no connection is possible from then on
	rows int64 // the number of changed rows
	// tuple is a returned row. end is the error that follows this row instead of the
	// end of the result.
	tuple []driver.Value
	end   error
}

var errDial = errors.New("connection refused")

// fake is a driver without a database. It returns its answers one after the other, and
// repeats the last answer. It records the statements. Its sessions have no open
// transaction.
type fake struct {
	mu      sync.Mutex
	answers []answer
	sent    []string
	closed  int // connections that were closed
	ping    func() error
	dial    func(ctx context.Context) error
	dials   int // calls of dial
	opened  int // connections that were opened
	// stale returns the error of an old connection when it leaves the pool. Connections
	// are old if they were opened before dial was set.
	stale func(ctx context.Context) error
	// lost makes each statement on an old connection fail, before it is sent.
	lost bool
	as   driver.Driver // the driver of the pool; nil: the fake
}

func newFake(t *testing.T, answers ...answer) *Place {
	t.Helper()
	db := sql.OpenDB(&fake{answers: answers})
	t.Cleanup(func() { _ = db.Close() })
	return New(db, dialect.PostgreSQL{})
}

func (f *fake) answer(text string) (answer, error) {
	if idle := (dialect.PostgreSQL{}).Idle(); text == idle.Succeed[0] || text == idle.True {
		return answer{tuple: []driver.Value{true}}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, text)
	a := f.answers[0]
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	return a, a.err
}

func (f *fake) Connect(ctx context.Context) (driver.Conn, error) {
	if f.dial != nil {
		f.mu.Lock()
		f.dials++
		f.mu.Unlock()
		if err := f.dial(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.answers[0].err, errDial) {
		return nil, errDial
	}
	f.opened++
	return connection{f, f.dial == nil}, nil
}

func (f *fake) Driver() driver.Driver {
	if f.as != nil {
		return f.as
	}
	return f
}

func (f *fake) Open(string) (driver.Conn, error) { return connection{f, true}, nil }

type connection struct {
	*fake
	old bool
}

func (c connection) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }

// Ping implements driver.Pinger. Unless stale is set, it ignores the context.
func (c connection) Ping(ctx context.Context) error {
	if c.ping == nil {
		return c.aged(ctx)
	}
	return c.ping()
}

// ResetSession implements driver.SessionResetter.
func (c connection) ResetSession(ctx context.Context) error {
	if c.lost {
		return nil
	}
	return c.aged(ctx)
}

func (c connection) aged(ctx context.Context) error {
	switch {
	case c.old && c.stale != nil:
		return c.stale(ctx)
	case c.isLost():
		return driver.ErrBadConn
	}
	return nil
}

func (c connection) isLost() bool { return c.old && c.lost }

func (c connection) Begin() (driver.Tx, error) { return nil, errors.ErrUnsupported }

func (c connection) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	return nil
}

func (c connection) ExecContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	if c.isLost() {
		return nil, driver.ErrBadConn
	}
	a, err := c.answer(text)
	return driver.RowsAffected(a.rows), err
}

func (c connection) QueryContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	if c.isLost() {
		return nil, driver.ErrBadConn
	}
	a, err := c.answer(text)
	return &result{a, len(a.tuple)}, err
}

// result has one row or none.
type result struct {
	answer
	columns int
}

func (r *result) Columns() []string { return make([]string, r.columns) }

func (r *result) Close() error { return nil }

func (r *result) Next(to []driver.Value) error {
	if r.tuple == nil {
		if r.end != nil {
			return r.end
		}
		return io.EOF
	}
	copy(to, r.tuple)
	r.tuple = nil
	return nil
}
