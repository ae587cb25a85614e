package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockkit/lockkit/core/internal/outage"
)

// probe asks the server for nothing, on a connection of its own: those of the pool
// may all be in use.
func (s *Store) probe(ctx context.Context) error {
	conn, err := s.hub.connectAs(ctx, s.pool.Config())
	if err != nil {
		if _, ok := errors.AsType[*pgconn.PgError](err); ok {
			return nil // it has answered
		}
		return err
	}
	defer conn.Close(ctx)
	return conn.Ping(ctx)
}

// judge notes the outcome of a call. A statement can wait for long for somebody's
// lock, so that one without an answer is only a reason to probe.
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

// full tells that the pool has nothing to give, so that a wait for it says nothing of
// the server.
func (s *Store) full() bool {
	stat := s.pool.Stat()
	return stat.AcquiredConns() >= stat.MaxConns()
}
