package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/internal/outage"
)

// probe pings the server on a connection of its own, since all connections of the pool may
// be in use.
func (s *Store) probe(ctx context.Context) error {
	conn, err := s.hub.connectAs(ctx, s.pool.Config())
	if err != nil {
		if _, ok := errors.AsType[*pgconn.PgError](err); ok {
			return nil // the server has answered
		}
		return err
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx)
}

// judge notes the outcome of a call. A statement can wait long for the row lock of another
// transaction, so a missing answer is no sign of an outage, but a reason to probe.
func (s *Store) judge(begun outage.Mark, err error) {
	reply, answered := errors.AsType[*pgconn.PgError](err)
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	switch {
	case err == nil, answered && reply.Code[:min(2, len(reply.Code))] != "08":
		s.gate.Answered()
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
