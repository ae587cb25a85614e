package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/internal/outage"
)

var (
	// errReadOnly is what the probe says of a server that takes no writes.
	errReadOnly = errors.New(standby.advice)
	errMoved    = errors.New("the connection leads to a server that takes no writes, and another one does")
)

// probe asks the server whether it takes writes, on a connection of its own, since all
// connections of the pool may be in use or lead to another server.
func (s *Store) probe(ctx context.Context) error {
	conn, err := s.connectAs(ctx, s.pool.Config())
	if err == nil {
		defer conn.Close(ctx)
		err = s.writable(ctx, conn.PgConn())
	}
	if c, ok := classOf(err); ok && c.unchanged && !c.away {
		return nil // the server has answered
	}
	if err == nil && s.away.CompareAndSwap(true, false) {
		s.abandon(errMoved) // what was connected meanwhile
	}
	return err
}

// writable is nil if the transaction of a call could write.
func (s *Store) writable(ctx context.Context, conn *pgconn.PgConn) error {
	text, n := "SHOW transaction_read_only", 1
	if s.isolated.Load() {
		text, n = begin+text+commit, 3
	}
	rows, err := results(ctx, conn, text, n)
	if err == nil && len(rows) == 1 && len(rows[0]) == 1 && string(rows[0][0]) == "on" {
		return errReadOnly
	}
	return err
}

// judge notes the outcome of a call. A statement can wait long for the row lock of another
// transaction, so a missing answer is no sign of an outage, but a reason to probe.
func (s *Store) judge(begun outage.Mark, err error) {
	c, answered := classOf(err)
	connecting := errors.As(err, new(*pgconn.ConnectError))
	switch {
	case err == nil, answered && c.unchanged && !c.away:
		s.gate.Answered()
	case answered && c.away:
		if s.gate.Why() == nil {
			s.abandon(err)
		}
		s.away.Store(true)
		s.gate.Failed(begun, err)
		_ = s.gate.Doubt(context.Background(), s.gate.Begin())
	case connecting:
		s.gate.Failed(begun, err)
	default:
		_ = s.gate.Doubt(context.Background(), begun)
	}
}

// full tells that all connections of the pool are in use. A wait for the pool then says
// nothing about the server.
func (s *Store) full() bool {
	stat := s.pool.Stat()
	return stat.AcquiredConns() >= stat.MaxConns()
}
