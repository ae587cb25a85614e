package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core"
)

var errNoAnswer = errors.New("no answer within the time of a call")

// do sends one statement and returns the rows of its answer.
//
// The wait for a connection ends with ctx, and nothing was sent then. The
// statement has two seconds of its own, whenever the caller leaves: pgx closes a
// connection whose context ends while it is used, and a new one costs the server
// a process. A pool that is too small would get smaller still.
func (s *Store) do(ctx context.Context, op string, st statement) ([][][]byte, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pgstore: %s: %w: %w", op, core.ErrUnavailable, context.Cause(ctx))
	}
	waiting, cancel := context.WithTimeoutCause(ctx, callLimit, errNoAnswer)
	defer cancel()
	conn, err := s.pool.Acquire(waiting)
	if err != nil {
		if cause := context.Cause(waiting); cause != nil {
			err = cause
		}
		return nil, wrap(op, fmt.Errorf("%w: no connection: %w", core.ErrUnavailable, err))
	}
	type outcome struct {
		rows [][][]byte
		err  error
	}
	done := make(chan outcome, 1)
	going, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), callLimit, errNoAnswer)
	go func() {
		defer stop()
		defer conn.Release()
		rows, err := s.send(going, conn, st)
		done <- outcome{rows, err}
	}()
	select {
	case o := <-done:
		return o.rows, wrap(op, o.err)
	case <-waiting.Done():
	}
	select {
	case o := <-done: // both
		return o.rows, wrap(op, o.err)
	default:
		return nil, wrap(op, fmt.Errorf("outcome unknown: %w", context.Cause(waiting)))
	}
}

// The three statements of a call that says what it needs are one message, and
// one round trip.
const (
	begin  = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
	commit = ";COMMIT"
)

// send runs a statement on conn. If the server says that it was not done for the isolation
// of transactions, it is done again in a transaction that says what it needs,
// and so is every further one.
func (s *Store) send(ctx context.Context, conn *pgxpool.Conn, st statement) ([][][]byte, error) {
	if !s.isolated.Load() {
		rows, err := results(ctx, conn.Conn().PgConn(), string(st), 1)
		if !hasCode(err, codeIsolation) {
			return rows, err
		}
		s.isolated.Store(true)
	}
	return results(ctx, conn.Conn().PgConn(), begin+string(st)+commit, 3)
}

// results returns the rows of text, which is n statements. They are committed
// when the last of them is complete, whatever becomes of the connection then.
func results(ctx context.Context, conn *pgconn.PgConn, text string, n int) ([][][]byte, error) {
	if conn.IsClosed() || ctx.Err() != nil {
		return nil, fmt.Errorf("%w: not sent: %w", core.ErrUnavailable, cmp.Or(context.Cause(ctx), pgconn.ErrConnClosed))
	}
	all := conn.Exec(ctx, text)
	var rows [][][]byte
	for all.NextResult() {
		r := all.ResultReader().Read()
		if r.Err == nil {
			n--
		}
		rows = append(rows, r.Rows...)
	}
	err := all.Close()
	if n == 0 {
		return rows, nil
	}
	if err == nil {
		err = errors.New("the answer is not complete")
	}
	return nil, verdict(err)
}

// once runs a statement that changes nothing that is kept.
func (s *Store) once(ctx context.Context, text string) ([][][]byte, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	return results(ctx, conn.Conn().PgConn(), text, 1)
}
