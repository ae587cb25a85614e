package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockkit/lockkit/core/internal/dialect"
	"github.com/lockkit/lockkit/core/internal/hub"
)

// These bound how long a waiter relies on a connection that died in silence.
const (
	pingEvery = 2 * time.Second
	pingLimit = 3 * time.Second
	deafFor   = time.Minute // until a pooler is tried again: its mode may have been changed
)

// listen is for the hub.
func (s *Store) listen(ctx context.Context, l *hub.Listener[struct{}]) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		// It ends with the process at the latest; a server that is gone is not
		// waited for.
		closing, cancel := context.WithTimeout(context.Background(), callLimit/2)
		defer cancel()
		_ = conn.Close(closing)
	}()
	setting, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if _, err := conn.PgConn().Exec(setting, "LISTEN "+dialect.Channel).ReadAll(); err != nil {
		return err
	}
	if err := s.hears(setting, conn); err != nil {
		return err
	}
	l.Live()
	for {
		waiting, stop := context.WithTimeout(ctx, pingEvery)
		n, err := conn.WaitForNotification(waiting)
		stop()
		switch {
		case err == nil:
			l.Wake(n.Payload, nil)
		case ctx.Err() != nil || waiting.Err() == nil:
			return err
		case l.Unused():
			return errors.New("the connection that listens is not used")
		default:
			pinging, stop := context.WithTimeout(ctx, pingLimit)
			err := conn.Ping(pinging)
			stop()
			if err != nil {
				return err
			}
		}
	}
}

// connect makes a connection like those of the pool, or as WithListener says.
func (s *Store) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if s.separate {
		return pgx.ConnectConfig(ctx, s.listenOn.Copy())
	}
	return connectAs(ctx, s.place.pool.Config())
}

// connectAs connects as a pool does.
func connectAs(ctx context.Context, pool *pgxpool.Config) (*pgx.Conn, error) {
	config := pool.ConnConfig.Copy()
	if pool.BeforeConnect != nil {
		if err := pool.BeforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	config.OnNotification = nil
	return pgx.ConnectConfig(ctx, config)
}

// hears finds out whether notifications arrive. Behind a pooler that gives a
// connection of the server to another client after each transaction they go
// astray. The process that answers tells that there is no pooler; if there is
// one, a notification is sent from elsewhere while this connection is idle.
func (s *Store) hears(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.PgConn().Exec(ctx, "SELECT pg_backend_pid()").ReadAll()
	if err != nil {
		return err
	}
	if len(rows) == 1 && len(rows[0].Rows) == 1 && string(rows[0].Rows[0][0]) == fmt.Sprint(conn.PgConn().PID()) {
		return nil
	}
	probe := rand.Text()
	if _, err := s.place.once(ctx, fmt.Sprintf("SELECT pg_catalog.pg_notify('%s', '%s')", dialect.Channel, probe)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit/2)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(ctx)
		switch {
		case err == nil && n.Payload == probe:
			return nil
		case err == nil:
		case ctx.Err() != nil && !conn.IsClosed():
			until := time.Now().Add(deafFor)
			s.deaf.Store(&until)
			return errDeaf
		default:
			return err
		}
	}
}
