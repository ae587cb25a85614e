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
	// tuple is a returned row, and end is the error after it, instead of the end of the
	// result.
	tuple []driver.Value
	end   error
}

var errDial = errors.New("connection refused")

// fake is a driver without a database. It returns its answers in turn, and repeats the
// last one. It records the statements. Its sessions have no open transaction.
type fake struct {
	mu      sync.Mutex
	answers []answer
	sent    []string
	closed  int // connections that were closed
	ping    func() error
}

// newFake returns a Place of PostgreSQL's dialect with these answers.
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

func (f *fake) Connect(context.Context) (driver.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.answers[0].err, errDial) {
		return nil, errDial
	}
	return connection{f}, nil
}

func (f *fake) Driver() driver.Driver { return f }

func (f *fake) Open(string) (driver.Conn, error) { return connection{f}, nil }

type connection struct{ *fake }

func (c connection) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }

// Ping implements driver.Pinger. It ignores the context.
func (c connection) Ping(context.Context) error {
	if c.ping == nil {
		return nil
	}
	return c.ping()
}

func (c connection) Begin() (driver.Tx, error) { return nil, errors.ErrUnsupported }

func (c connection) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
	return nil
}

func (c connection) ExecContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	a, err := c.answer(text)
	return driver.RowsAffected(a.rows), err
}

func (c connection) QueryContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
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
