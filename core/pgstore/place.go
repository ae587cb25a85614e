package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/casstore"
	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/hub"
	"github.com/lockkit/lockkit/core/internal/table"
	"github.com/lockkit/lockkit/core/internal/words"
	"github.com/lockkit/lockkit/core/store"
)

var (
	errNoAnswer = errors.New("no answer within the time of a call")
	errClosed   = errors.New("the connection is closed")
)

// place stores locks in the database of a pool.
//
// place sends statements as text without arguments, in the simple protocol. So the
// server receives a whole statement or nothing. In the extended protocol, a client that
// vanishes before its last message leaves a transaction open, with the row of a lock
// locked. The statements that take and release the usual lock are prepared if that is
// safe. Planning takes most of the server's time for these statements.
type place struct {
	table.Place
	prepared table.Place // the same tables, by statements with arguments
	pool     *pgxpool.Pool
	hub      *hub.Hub[struct{}]
	// isolated reports that transactions have one snapshot by default, and that a
	// statement has conflicted with another transaction. Then each statement sets its
	// isolation level.
	isolated atomic.Bool
	// away reports that a server accepted no locks, and that no call or probe has found
	// a server that accepts locks since.
	away atomic.Bool
	// silent reports that a connection did not answer. Then the next call takes a new
	// connection.
	silent atomic.Bool
}

var (
	_ casstore.Usual   = (*place)(nil)
	_ casstore.Pooled  = (*place)(nil)
	_ casstore.Prober  = (*place)(nil)
	_ casstore.Lister  = (*place)(nil)
	_ casstore.Sweeper = (*place)(nil)
	_ store.Checker    = (*place)(nil)
)

// maxTogether limits the number of holds that one statement extends. The statement
// contains each key twice, in hex.
const maxTogether = 512

func newPlace(pool *pgxpool.Pool, listeners *hub.Hub[struct{}]) *place {
	p := &place{pool: pool, hub: listeners}
	p.Place.DB, p.Place.Dialect, p.Place.Together = p, dialect.PostgreSQL{Literal: true}, maxTogether
	p.prepared.DB, p.prepared.Dialect = p, dialect.PostgreSQL{}
	return p
}

const (
	maxWord = 256 // the maximum bytes of a lease or an owner
	// maxLife limits all durations, so that no date is out of range.
	maxLife = 100 * 365 * 24 * time.Hour
)

// CheckClaim implements store.Checker.
func (*place) CheckClaim(c store.Claim) error {
	var fault string
	switch {
	case len(c.Lease) > maxWord:
		fault = fmt.Sprintf("lease has %d bytes (at most %d)", len(c.Lease), maxWord)
	case len(c.Owner) > maxWord || len(c.Via) > maxWord:
		fault = fmt.Sprintf("owner has %d bytes (at most %d)", max(len(c.Owner), len(c.Via)), maxWord)
	case min(c.TTL, c.Keep) < 0 || max(c.TTL, c.Keep) > maxLife:
		fault = fmt.Sprintf("TTL %s or Keep %s is out of range (0 to 100 years)", words.Duration(c.TTL), words.Duration(c.Keep))
	case c.Record != nil && c.Record.Retain > maxLife:
		fault = fmt.Sprintf("record has Retain %s, out of range (at most 100 years)", words.Duration(c.Record.Retain))
	default:
		return nil
	}
	return fmt.Errorf("pgstore: check claim: %s: %w", fault, store.ErrInvalid)
}

// connected is the key of the connection in the context of a call.
type connected struct{}

// Connect implements casstore.Pooled.
func (p *place) Connect(ctx context.Context) (context.Context, func(), error) {
	conn, err := p.connection(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("no connection: %w", err)
	}
	return context.WithValue(ctx, connected{}, conn), conn.Release, nil
}

// Load implements casstore.Place. If row-level security hides the version of the tables,
// the error names the remedy.
func (p *place) Load(ctx context.Context, key string, w casstore.Want) (casstore.Entry, error) {
	e, err := p.Place.Load(ctx, key, w)
	if !errors.Is(err, table.ErrHidden) {
		return e, err
	}
	if conn, ok := ctx.Value(connected{}).(*pgxpool.Conn); ok {
		if secured, _ := hidden(ctx, conn.Conn().PgConn(), "locks", "version"); secured != "" {
			err = fmt.Errorf("%w: %s", store.ErrUnavailable, secured)
		}
	}
	return e, err
}

// Query implements table.DB. It calls next only after the end of the result.
func (p *place) Query(ctx context.Context, st dialect.Statement, next func(scan table.Scan) error) error {
	a, err := p.send(ctx, st)
	for _, row := range a.rows {
		if err == nil {
			err = next(func(to ...any) error { return scan(row, to) })
		}
	}
	if table.IsReplica(err) {
		if conn, ok := ctx.Value(connected{}).(*pgxpool.Conn); ok {
			shut(conn.Conn().PgConn())
		}
		p.moved(err)
	}
	return err
}

// Change implements table.DB.
func (p *place) Change(ctx context.Context, st dialect.Statement) (int64, error) {
	a, err := p.send(ctx, st)
	if err == nil && p.away.Load() {
		p.found()
	}
	return a.changed, err
}

// A statement that sets its isolation level is sent as three statements in one message.
// So it takes one round trip.
const (
	begin  = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
	commit = ";COMMIT"
)

// send sends a statement on the connection of ctx, or on any connection of the pool.
// After a rollback because of the isolation level, send repeats the statement in a
// transaction that sets the level. Each further statement then sets the level at once.
func (p *place) send(ctx context.Context, st dialect.Statement) (answer, error) {
	conn, ok := ctx.Value(connected{}).(*pgxpool.Conn)
	if !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, callLimit, errNoAnswer)
		defer cancel()
		var err error
		if conn, err = p.connection(ctx); err != nil {
			return answer{}, fmt.Errorf("%w: no connection: %w", store.ErrUnavailable, err)
		}
		defer conn.Release()
	}
	exec := p.exec
	if st.Args != nil {
		exec = p.execPrepared
	}
	silence := time.AfterFunc(answerMax, func() { p.silent.Store(true) })
	defer silence.Stop()
	a, err := exec(ctx, conn.Conn().PgConn(), st)
	p.note(ctx, err)
	return a, err
}

// note records a time-out or a refusal of locks in err, the error of a statement under
// ctx. After a time-out the pool's connections may be silent. After a refusal they may
// lead to a server that accepts no locks.
func (p *place) note(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		p.silent.Store(true)
	}
	if c, answered := classOf(err); answered && c.away {
		p.moved(err)
	}
}

func (p *place) exec(ctx context.Context, conn *pgconn.PgConn, st dialect.Statement) (answer, error) {
	if !p.isolated.Load() {
		a, err := results(ctx, conn, st.Text, 1)
		if !hasCode(err, codeSerialization) || !p.hasSnapshots(ctx, conn) {
			return a, err
		}
	}
	return committed(ctx, conn, st.Text)
}

// hasSnapshots reports whether the transactions of conn are above READ COMMITTED by
// default. If they are, every further statement of p sets its isolation level.
// hasSnapshots reads the level once per connection, because serialization failures of a
// trigger or a standby do not change it. Behind a pooler it reads the level each time,
// because the next statement may be in another session.
func (p *place) hasSnapshots(ctx context.Context, conn *pgconn.PgConn) bool {
	s := sessionOf(conn)
	if s.committed {
		return false
	}
	level, err := value(ctx, conn, "SHOW transaction_isolation", 1)
	if err != nil {
		return false
	}
	if level != "read committed" && level != "read uncommitted" {
		p.isolated.Store(true)
		return true
	}
	s.committed, _ = s.isDirect(ctx, conn)
	return false
}

// committed runs a statement in a transaction that sets its isolation level. If the
// statement fails, committed rolls the transaction back. Otherwise the next statement
// would fail because of the failed transaction.
func committed(ctx context.Context, conn *pgconn.PgConn, text string) (answer, error) {
	a, err := results(ctx, conn, begin+text+commit, 3)
	if err != nil && !conn.IsClosed() && conn.TxStatus() != 'I' {
		if _, failed := results(ctx, conn, "ROLLBACK", 1); failed != nil {
			shut(conn)
		}
	}
	return a, err
}

type answer struct {
	rows    [][][]byte
	changed int64
}

// results runs text, which has n statements, and returns their answer. The statements
// are committed when the last statement is completed, even if the connection breaks
// after that.
func results(ctx context.Context, conn *pgconn.PgConn, text string, n int) (a answer, err error) {
	if conn.IsClosed() || ctx.Err() != nil {
		return a, fmt.Errorf("%w: not sent: %w", store.ErrUnavailable, cmp.Or(context.Cause(ctx), errClosed))
	}
	all := conn.Exec(ctx, text)
	for all.NextResult() {
		r := all.ResultReader().Read()
		if r.Err == nil {
			n--
		}
		a.rows = append(a.rows, r.Rows...)
		if !strings.HasPrefix(r.CommandTag.String(), "SELECT") {
			a.changed += r.CommandTag.RowsAffected()
		}
	}
	err = all.Close()
	if n == 0 {
		return a, nil
	}
	if err == nil {
		err = errors.New("the answer is not complete")
	}
	if c, ok := classOf(err); ok && !c.kept {
		shut(conn)
	}
	return answer{}, verdict(err)
}

// value runs text, which has n statements, and returns the single value that they
// select.
func value(ctx context.Context, conn *pgconn.PgConn, text string, n int) (string, error) {
	a, err := results(ctx, conn, text, n)
	if err != nil {
		return "", err
	}
	if len(a.rows) != 1 || len(a.rows[0]) != 1 {
		return "", verdict(fmt.Errorf("the answer to %q is not one value", text))
	}
	return string(a.rows[0][0]), nil
}

// once runs a statement that changes no data, on a connection of the pool.
func (p *place) once(ctx context.Context, text string) (answer, error) {
	conn, err := p.connection(ctx)
	if err != nil {
		return answer{}, err
	}
	defer conn.Release()
	return results(ctx, conn.Conn().PgConn(), text, 1)
}
