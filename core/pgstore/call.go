package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/internal/brief"
	"github.com/lockkit/lockkit/core/internal/calls"
	"github.com/lockkit/lockkit/core/internal/claims"
	"github.com/lockkit/lockkit/core/store"
)

var (
	errNoAnswer = errors.New("no answer within the time of a call")
	errClosed   = errors.New("the connection is closed")
)

// do sends one statement and returns the rows of its answer.
//
// If ctx ends while do waits for a connection, nothing was sent. A statement that was sent
// has two seconds, even if the caller leaves before: pgx closes a connection if the context
// ends while it is used. The server then has to start a process for a new connection, and a
// small pool has fewer connections until then.
func (s *Store) do(ctx context.Context, op string, st statement) ([][][]byte, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("pgstore: %s: %w: %w", op, store.ErrUnavailable, context.Cause(ctx))
	}
	if op == "acquire" {
		if err := s.gate.Enter(ctx); err != nil {
			return nil, wrap(op, fmt.Errorf("%w: %w", store.ErrUnavailable, brief.Error(err)))
		}
	}
	begun := s.gate.Begin()
	waiting, cancel := context.WithTimeoutCause(ctx, callLimit, errNoAnswer)
	defer cancel()
	conn, err := s.connection(waiting)
	if err != nil {
		if cause := context.Cause(waiting); cause == nil {
			s.judge(begun, err)
		} else if err = cause; !s.full() {
			if why := s.gate.Doubt(waiting, begun); why != nil {
				err = fmt.Errorf("%w: %w", cause, brief.Error(why))
			}
		}
		return nil, wrap(op, fmt.Errorf("%w: no connection: %w", store.ErrUnavailable, err))
	}
	going, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), callLimit, errNoAnswer)
	rows, left, err := calls.Detached(waiting, func() ([][][]byte, error) {
		defer stop()
		defer conn.Release()
		rows, err := s.send(going, conn, st)
		if err != nil && going.Err() != nil {
			s.silent.Store(true)
		}
		s.judge(begun, err)
		return rows, err
	})
	if left {
		err = fmt.Errorf("outcome unknown: %w", claims.Classless(err))
	}
	return rows, wrap(op, err)
}

// A call that sets its isolation level has three statements. They are one message, so the
// call is still one round trip.
const (
	begin  = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"
	commit = ";COMMIT"
)

// send runs a statement on conn. If the server refuses the isolation level of its
// transaction, or has undone it because of that level, send repeats the statement in a transaction that sets the level. It does so
// for every further statement from the beginning.
func (s *Store) send(ctx context.Context, conn *pgxpool.Conn, st statement) ([][][]byte, error) {
	if !s.isolated.Load() {
		rows, err := results(ctx, conn.Conn().PgConn(), string(st), 1)
		if !hasCode(err, codeIsolation) && !hasCode(err, codeSerialization) {
			return rows, err
		}
		s.isolated.Store(true)
	}
	return results(ctx, conn.Conn().PgConn(), begin+string(st)+commit, 3)
}

// results runs text, which has n statements, and returns its rows. The statements are
// committed when the last one is complete, even if the connection breaks after that.
func results(ctx context.Context, conn *pgconn.PgConn, text string, n int) ([][][]byte, error) {
	if conn.IsClosed() || ctx.Err() != nil {
		return nil, fmt.Errorf("%w: not sent: %w", store.ErrUnavailable, cmp.Or(context.Cause(ctx), errClosed))
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
	if c, ok := classOf(err); ok && !c.kept {
		shut(conn)
	}
	return nil, verdict(err)
}

// once runs a statement that changes no data.
func (s *Store) once(ctx context.Context, text string) ([][][]byte, error) {
	conn, err := s.connection(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	return results(ctx, conn.Conn().PgConn(), text, 1)
}
